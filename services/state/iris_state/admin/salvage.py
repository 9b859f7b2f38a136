"""Rebuilds the records from a snapshot and every readable commit, though some are lost. Pure.

Up to the first loss the journal is replayed as usual. After it a change may refer to a record that
was lost: such a change is skipped, and its job stays as it was before the loss, except for its
admission. Workers report again which attempts they run, so differences are corrected as after any
    outage. Source: docs/adr/0019-damaged-data.md.
"""

from __future__ import annotations

import msgspec

from iris_core import codec
from iris_state.admin.survey import Found, Survey
from iris_state.check import records as check
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.changes import Assigned, Change, Commit, JobAdmitted
from iris_state.records.facts import PublicFact
from iris_state.snapshots import snapshot

NUMBERS = 1_000_000
"""Job numbers skipped after a loss or a restore: a worker may still run a job of a lost commit,
under its number.
"""
_DOES_NOT_FIT = (LookupError, AttributeError, AssertionError, TypeError, ValueError)


class Salvaged(msgspec.Struct):
    """The result of a salvage.

    Attributes:
        machine: the records at the end.
        facts: the public facts of each applied commit.
        stopped: number and name of each job that stays as it was before the loss; "" for an unknown
            name.
        left_out: how many readable changes were not applied.
        wrong: violated invariants as text; heartbeats of workers correct the held resources.
    """

    machine: Machine
    facts: list[tuple[int, list[PublicFact]]]
    stopped: dict[int, str]
    left_out: int
    wrong: list[str]


def salvage(policy: Policy, data: bytes | None, found: Survey) -> Salvaged:
    """The records from the snapshot ``data``, if any, and the commits after it.

    Replays two or three times when commits are lost. Raises snapshot.Damaged,
    snapshot.OtherVersion.
    """
    stopped: set[int] = set()
    while True:
        attempt = _Replay(policy, snapshot.read(data) if data is not None else None, found, stopped)
        more = attempt.doubtful - stopped
        if not more:
            return attempt.outcome()
        stopped |= more


class _Replay:
    """One replay that leaves the jobs in ``stopped`` as they were before the first loss."""

    def __init__(
        self, policy: Policy, image: snapshot.Image | None, found: Survey, stopped: set[int]
    ) -> None:
        self.doubtful: set[int] = set()
        self._machine = Machine(policy, "repair")
        self._found = found
        self._stopped = stopped
        self._facts: list[tuple[int, list[PublicFact]]] = []
        self._left_out = 0
        if image is not None:
            self._machine.restore(image)
        first = found.lost[0].first if found.lost else found.end + 1
        for one in found.commits:
            if one.sequence < first:
                self._facts.append((one.sequence, self._replay(one, one.commit.changes)))
            else:
                self._facts.append((one.sequence, self._behind_loss(one)))
        self._machine.sequence = found.end
        if found.lost:
            self._after_loss()

    def outcome(self) -> Salvaged:
        ledger = self._machine.ledger
        names = {
            number: ledger.jobs[number].name if number in ledger.jobs else ""
            for number in sorted(self._stopped)
        }
        return Salvaged(
            self._machine, self._facts, names, self._left_out, wrong=list(check.violations(ledger))
        )

    def _replay(self, one: Found, changes: list[Change]) -> list[PublicFact]:
        commit = one.commit
        self._machine.serial = -1
        return self._machine.replay(
            one.sequence, codec.pack(Commit(commit.epoch, commit.serial, commit.at_ms, changes))
        )

    def _behind_loss(self, one: Found) -> list[PublicFact]:
        """Apply a commit change by change, so that an invalid change does not prevent the
        others.
        """
        facts: list[PublicFact] = []
        for change in one.commit.changes:
            admitted = isinstance(change, JobAdmitted)
            job = None if admitted else getattr(change, "job", None)
            if job in self._stopped:
                self._left_out += 1
                continue
            try:
                if isinstance(change, Assigned):
                    self._machine.ledger.workers[change.worker]
                facts += self._replay(one, [change])
            except _DOES_NOT_FIT:
                self._left_out += 1
                self._machine.ledger.facts.clear()
                if job is not None:
                    self.doubtful.add(job)
        return facts

    def _after_loss(self) -> None:
        """Account for what lost commits may have done: admitted jobs, changed the leader."""
        ledger = self._machine.ledger
        ledger.next_number += NUMBERS
        ledger.epoch += sum(lost.size for lost in self._found.lost)
        for job in ledger.jobs.values():
            if any(wrong for sentence in check.OF_JOB for wrong in sentence(ledger, job)):
                self.doubtful.add(job.number)
