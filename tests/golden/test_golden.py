"""Stored journals of earlier releases replay to the same records."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest

from iris_core import codec
from iris_core.subjects import SUBJECTS
from iris_state.check.records import check
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.changes import Change, Commit
from iris_state.snapshots import snapshot
from tests.golden import KINDS
from tests.support.usage import usage_rows

T = TypeVar("T")
RELEASES = sorted(path.parent for path in Path(__file__).parent.glob("*/summary.json"))


def summary(machine: Machine) -> dict[str, Any]:
    """A ledger as names, states and counters, which outlive every change of its encoding."""
    return {
        "sequence": machine.sequence,
        "epoch": machine.ledger.epoch,
        "jobs": {
            job.id: {
                "name": job.name,
                "state": job.state.name,
                "tasks": [
                    [task.state.name, task.failure_count, task.preemption_count, len(task.attempts)]
                    for task in job.tasks
                ],
            }
            for job in machine.ledger.jobs.values()
        },
        "workers": {worker.id: worker.state.value for worker in machine.ledger.workers.values()},
        "keys": machine.ledger.idempotency,
        "answered": len(machine.ledger.answers),
        **chains(machine),
        **notices(machine),
        **stored(machine),
        **deployments(machine),
        "usage": usage(machine),
        **groups(machine),
        **fleet(machine),
    }


def fleet(machine: Machine) -> dict[str, Any]:
    """The pools, and the status and the last cause of each slice, where there are any."""
    known = machine.ledger.fleet
    pools = {name: [pool.version, pool.spec.max] for name, pool in known.pools.items()}
    slices = {
        f"{one.name} {one.number}": [one.status.value, one.cause.value, len(one.steps)]
        for one in known.slices.values()
    }
    return ({"pools": pools} if pools else {}) | ({"slices": slices} if slices else {})


def groups(machine: Machine) -> dict[str, Any]:
    """The groups of users and the limits of users and groups, where there are any."""
    ledger = machine.ledger
    limits = {user: quota.max_running_cpu for user, quota in ledger.quotas.items()}
    known = {user: list(names) for user, names in ledger.groups.items()}
    return ({"groups": known} if known else {}) | ({"limits": limits} if limits else {})


def usage(machine: Machine) -> dict[str, list[int]]:
    """The attempts of each user and outcome that have ended, and thousandths of processors times
    ms.
    """
    sums: dict[str, list[int]] = {}
    for _, user, _, outcomes in usage_rows(machine.ledger.usage):
        for outcome, used in outcomes.items():
            before = sums.get(f"{user} {outcome}", [0, 0])
            sums[f"{user} {outcome}"] = [before[0] + used.attempts, before[1] + used.cpu]
    return sums


def chains(machine: Machine) -> dict[str, Any]:
    """How many attempts waited behind others, and in which jobs processes make several calls, where
    there are any.
    """
    jobs = machine.ledger.jobs.values()
    waited = sum(
        attempt.chain is not None for job in jobs for task in job.tasks for attempt in task.attempts
    )
    reuse = {
        job.id: job.spec.calls.reuse
        for job in jobs
        if job.spec.calls is not None and job.spec.calls.reuse > 1
    }
    return ({"waited": waited} if waited else {}) | ({"reuse": reuse} if reuse else {})


def notices(machine: Machine) -> dict[str, Any]:
    """How many notices attempts were given, by reason, where there are any."""
    attempts = (
        one for job in machine.ledger.jobs.values() for task in job.tasks for one in task.attempts
    )
    given = Counter(notice.reason.value for attempt in attempts for notice in attempt.notices)
    return {"notices": dict(sorted(given.items()))} if given else {}


def stored(machine: Machine) -> dict[str, Any]:
    """What the jobs of each user hold, and what they have stored on the last day, where there is
    any.
    """
    sums = machine.ledger.stored
    held = {
        user: {kind.value: size for kind, size in sorted(kinds.items())}
        for user, kinds in sorted(sums.of_user.items())
    }
    return {"stored": held, "stored_today": dict(sorted(sums.today.items()))} if held else {}


def deployments(machine: Machine) -> dict[str, Any]:
    """What there is of deployments, where there are any."""
    found = machine.ledger.deployments.values()
    if not found:
        return {}
    return {
        "deployments": {
            one.id: {
                "name": one.name,
                "status": one.status.value,
                "revision": one.revision,
                "version": one.discovered.version,
                "routes": {route.id: route.status.value for route in one.routes.values()},
            }
            for one in found
        }
    }


def stored_in(release: Path, file: str, kind: type[T]) -> dict[str, T]:
    """What a file of a release has, by the name of the journal or of the message."""
    return codec.unpack((release / file).read_bytes(), dict[str, kind])


def changes_in(journals: dict[str, list[bytes]]) -> set[str]:
    """The kinds of changes in journals."""
    commits = (codec.unpack(data, Commit) for journal in journals.values() for data in journal)
    return {type(change).__name__ for commit in commits for change in commit.changes}


def check_summaries(release: Path, machines: dict[str, Machine]) -> None:
    for machine in machines.values():
        check(machine.ledger)
    wanted = json.loads((release / "summary.json").read_text())
    assert {name: summary(machine) for name, machine in machines.items()} == wanted


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_journals_of_an_earlier_release_replay(release):
    machines = {}
    for name, journal in stored_in(release, "journals", list[bytes]).items():
        machines[name] = Machine(Policy(), "golden")
        for sequence, data in enumerate(journal, 1):
            machines[name].replay(sequence, data)
    check_summaries(release, machines)


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_snapshots_of_an_earlier_release_are_gone_on_from(release):
    machines = {}
    journals = stored_in(release, "journals", list[bytes])
    for name, data in stored_in(release, "snapshots", bytes).items():
        machine = machines[name] = Machine(Policy(), "golden")
        machine.restore(snapshot.read(data))
        for sequence, commit in enumerate(journals[name][machine.sequence :], machine.sequence + 1):
            machine.replay(sequence, commit)
    check_summaries(release, machines)


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_what_services_of_an_earlier_release_say_is_understood(release):
    """Each message reads as it was meant; what it did not have yet has come behind what it had."""
    for kind, data in said(release).items():
        meant = codec.unpack(data, Any)
        understood = codec.unpack(codec.pack(codec.unpack(data, KINDS[kind])), Any)
        assert begins_with(understood, meant), f"{kind}: {meant} is understood as {understood}"


NEW: frozenset[str] = frozenset({"ExecutionRequest", "ServiceInfo"})
"""Kinds of messages that no release kept has."""


NEW_CHANGES: frozenset[str] = frozenset()
"""Kinds of changes that no release kept has."""


def said(release: Path) -> dict[str, bytes]:
    return stored_in(release, "messages", bytes)


def begins_with(now: Any, then: Any) -> bool:
    """Whether everything that was there then is there now, in its place; there may be more behind
    it.
    """
    if isinstance(then, list):
        pairs = zip(now, then, strict=False)
        return (
            isinstance(now, list)
            and len(now) >= len(then)
            and all(begins_with(a, b) for a, b in pairs)
        )
    if isinstance(then, dict):
        return isinstance(now, dict) and all(
            key in now and begins_with(now[key], then[key]) for key in then
        )
    return bool(now == then)


def test_there_is_something_to_replay():
    assert RELEASES


def test_there_is_a_message_of_every_kind():
    """In some release kept; what is new since comes with the next."""
    kept = {kind for release in RELEASES for kind in said(release)}
    sent = {subject.message for subject in SUBJECTS if subject.message in KINDS} - NEW
    assert sent | {"Answer", "OrderTaken", "PlanPreview", "PlanTaken", "ReportTaken"} <= kept


def test_there_is_a_change_of_every_kind():
    """In some release kept; one that is new since comes with the next."""
    kept = {
        kind
        for release in RELEASES
        for kind in changes_in(stored_in(release, "journals", list[bytes]))
    }
    assert {kind.__name__ for kind in get_args(Change)} - kept == NEW_CHANGES
