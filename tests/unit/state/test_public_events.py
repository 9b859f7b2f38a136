"""Public events of what changes no state: amendments, holds on the queue, notices.

docs/subjects.md#events.
"""

from __future__ import annotations

import json
from typing import Any

from iris.client.http.event_stream import ServerEvent
from iris.client.http.events import read_event
from iris_core import codec
from iris_core.views.events import AmendmentEvent, HoldEvent, JobEvent, NoticeEvent, TaskEvent
from iris_state.effects.outbox import events
from iris_state.machine.machine import Machine
from tests.support.script import Script

STATES = ("task.state.", "job.state.")


def others(script: Script) -> list[tuple[str, dict[str, Any]]]:
    """The events that tell of no state of a task or job, without their time and position."""
    kept = [
        (subject, event) for subject, event in script.world.events if not subject.startswith(STATES)
    ]
    return [
        (subject, {k: v for k, v in event.items() if k not in ("at_ms", "seq")})
        for subject, event in kept
    ]


def test_an_amendment_is_published_with_what_it_changed(script: Script) -> None:
    script.play("""
        submit /a band=batch
        update /a band=production timeout_s=60
    """)
    [(subject, event)] = others(script)
    assert subject == "job.spec.amended"
    assert event == {
        "job": "/a",
        "job_id": "j1",
        "user": "root",
        "state": "pending",
        "previous": "pending",
        "cause": None,
        "by": "root",
        "changes": ["band production, was batch", "timeout_s 60, was none"],
    }


def test_a_hold_of_one_job_and_its_release_are_amendments(script: Script) -> None:
    script.play("""
        submit /a
        hold /a
        release /a
    """)
    assert [(subject, event["changes"]) for subject, event in others(script)] == [
        ("job.spec.amended", ["held"]),
        ("job.spec.amended", ["released"]),
    ]


def test_a_hold_on_the_queue_and_its_release_are_published(script: Script) -> None:
    script.play("""
        submit /a for_user=mia
        hold-queue user=mia by=mia reason=data
        release-queue h1 by=mia
    """)
    hold = {"hold": "h1", "user": "mia", "band": "", "label": "", "reason": "data", "by": "mia"}
    assert others(script) == [
        ("queue.state.held", {**hold, "state": "held", "previous": None}),
        ("queue.state.released", {**hold, "state": "released", "previous": "held"}),
    ]


def test_a_notice_is_published_with_its_reason_and_no_change_of_state(script: Script) -> None:
    script.play("""
        worker w0
        submit /a timeout=30 notice=USR1@10
        place /a/0 w0
        /a/0 run
        /a/0 noticed timeout
    """)
    [(subject, event)] = others(script)
    assert subject == "task.notice.timeout"
    assert event == {
        "task": "/a/0",
        "task_id": "j1/0",
        "attempt": 0,
        "job": "/a",
        "job_id": "j1",
        "user": "root",
        "state": "running",
        "previous": "running",
        "cause": None,
        "exit_code": None,
        "worker": "w0",
        "reason": "timeout",
        "deadline_ms": None,
    }


def test_the_end_of_a_task_by_a_signal_names_it(script: Script) -> None:
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2 tolerate=2
        schedule
        /a/0 sigbus
        /a/1 exit 1
    """)
    ends = [event for subject, event in script.world.events if subject == "task.state.failed"]
    assert [(event["exit_code"], event.get("signal")) for event in ends] == [(None, 7), (1, None)]


def test_a_client_reads_them_and_an_older_one_takes_them_for_its_own_kinds(script: Script) -> None:
    """A client of an earlier release reads whatever is about a task as a TaskEvent."""
    script.play("""
        worker w0
        submit /a timeout=30 notice=USR1@10
        hold-queue user=mia by=mia
        update /a timeout_s=60
        place /a/0 w0
        /a/0 run
        /a/0 noticed timeout
    """)
    read = []
    for subject, event in script.world.events:
        if not subject.startswith(STATES):
            data = codec.to_json(event)
            read.append(type(read_event(ServerEvent("1", subject, data))))
            older: Any = {"task": TaskEvent, "job": JobEvent}.get(subject.partition(".")[0])
            assert older is None or codec.from_json(data, older).state == event["state"]
    assert read == [HoldEvent, AmendmentEvent, NoticeEvent]


def test_a_replayed_commit_makes_the_same_events(script: Script) -> None:
    script.play("""
        submit /a for_user=mia
        update /a band=production
        hold-queue user=mia by=mia
        release-queue h1 by=mia
    """)
    machine = Machine(script.world.policy, "reader")
    made = [
        event
        for place, data in script.world.commits
        for event in events(machine.replay(place, data), place)
    ]
    assert [(event.subject, json.loads(event.data)) for event in made] == script.world.events
