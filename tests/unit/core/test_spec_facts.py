"""No field of a specification is without a fact: what a job was given can be read where people
look.
"""

import msgspec
import pytest

from iris_core.spec.exit_rules import ExitRule
from iris_core.spec.jobs import (
    Constraint,
    Coscheduling,
    Environment,
    JobSpec,
    Level,
    NoticePolicy,
    StopPolicy,
)
from iris_core.spec.notify import NotifyRule
from iris_core.spec.resources import Device, ResourceRequest
from iris_core.views.spec_facts import facts_of

OTHERS = {
    "resources": ResourceRequest(
        cpu_millis=500, device=Device("tpu", ("v6e-16", "v5litepod-16"), 4)
    ),
    "constraints": (Constraint("zone", value="a"), Constraint("zone", value="b", mode="preferred")),
    "coscheduling": Coscheduling("rack", slices=2, within="zone", success="leader"),
    "max_retries_failure": 3,
    "max_retries_preemption": 7,
    "max_task_failures": 2,
    "scheduling_timeout_s": 60.0,
    "timeout_s": 7200.0,
    "ports": ("http",),
    "environment": Environment(image="train:1"),
    "output": "out",
    "spread": "none",
    "array": "0-15:4,20",
    "each_line": ".iris-lines",
    "max_parallel": 2,
    "on_exit": (ExitRule((75, "64-78"), "requeue"),),
    "notify": (NotifyRule("ops", ("failed", "waiting_1h")),),
    "max_requeues": 5,
    "backoff_s": 10.0,
    "max_backoff_s": 20.0,
    "preload": ("torch",),
    "stop": StopPolicy(signal="SIGINT", grace_s=60.0),
    "terminal": True,
    "notice": NoticePolicy(signal="SIGUSR2", before_s=90.0),
    "on_timeout": "requeue",
    "protect_s": 600.0,
    "project": "/research/nlp",
}
ELSEWHERE = {
    *(
        "name",
        "command",
        "user",
        "band",
        "labels",
        "replicas",
        "indexes",
    ),  # `job_facts` and the head of the page
    *("after", "not_before", "singleton", "hold"),  # gates have rows of their own
    *(
        "env",
        "bundle",
        "calls",
        "probe",
    ),  # not for reading: long, or made by the client or the deployment
}


def test_each_field_of_a_specification_has_a_fact():
    plain = JobSpec(name="/a", command=("true",))
    silent = {
        name
        for name in JobSpec.__struct_fields__
        if name not in ELSEWHERE
        and set(facts_of(msgspec.structs.replace(plain, **{name: OTHERS[name]})))
        == set(facts_of(plain))
    }
    assert silent == set()


@pytest.mark.parametrize(
    ("field", "facts"),
    [
        ("resources", [("cpu", "0.5"), ("device", "v6e-16 or v5litepod-16 × 4")]),
        ("constraints", [("hosts", "zone eq a"), ("preferred hosts", "zone eq b")]),
        (
            "coscheduling",
            [("coscheduled", "2 slices by rack within one zone, done when task 0 is")],
        ),
        ("array", [("array", "0-15:4, 20")]),
        ("max_parallel", [("at a time", "2 tasks")]),
        ("on_exit", [("on exit 75, 64-78", "requeue")]),
        ("notify", [("tells ops", "failed, waiting_1h")]),
        ("backoff_s", [("backoff", "10s, doubled up to 5m")]),
        ("stop", [("stopped by", "SIGINT, KILL 1m later")]),
        ("notice", [("notice", "SIGUSR2, 90s before the time limit")]),
        ("timeout_s", [("timeout", "2h")]),
        ("protect_s", [("protected", "from preemption for its first 10m")]),
    ],
)
def test_facts_name_what_a_field_says(field, facts):
    found = list(facts_of(JobSpec(name="/a", command=("true",), **{field: OTHERS[field]})))
    assert [fact for fact in found if fact in facts] == facts


@pytest.mark.parametrize(
    ("given_s", "words"),
    [
        (None, "TERM, KILL 2h later"),
        (7200.0, "TERM, KILL 2h later"),
        (
            90.0,
            "TERM, KILL 90s later: it asks for 2h, and the cluster gives no more ([state] max_grace_s)",
        ),
    ],
)
def test_a_grace_period_is_shown_as_the_cluster_gives_it(given_s, words):
    spec = JobSpec(name="/a", command=("true",), stop=StopPolicy(signal="TERM", grace_s=7200.0))
    assert dict(facts_of(spec, given_s))["stopped by"] == words


def test_levels_that_are_preferred_are_named_as_such():
    gang = Coscheduling((Level("rack", "preferred"), Level("block")))
    facts = dict(facts_of(JobSpec(name="/a", command=("true",), replicas=2, coscheduling=gang)))
    assert facts["coscheduled"] == "by rack (preferred), block"


@pytest.mark.parametrize(
    ("longest_s", "words"), [(5.0, "10s"), (10.0, "10s"), (20.0, "10s, doubled up to 20s")]
)
def test_a_pause_that_never_grows_is_not_shown_as_doubled(longest_s, words):
    spec = JobSpec(name="/a", command=("true",), backoff_s=10.0, max_backoff_s=longest_s)
    assert dict(facts_of(spec))["backoff"] == words
