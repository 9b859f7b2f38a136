"""Examines a cluster's snapshots and journal, and whether a state service can start from them.

Changes nothing. See also: `repair`, which uses the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from iris_bus.contract import Blobs
from iris_core import subjects
from iris_state.admin.salvage import Salvaged, salvage
from iris_state.admin.stored import Stored
from iris_state.admin.survey import Lost, Survey, survey
from iris_state.effects.outbox import event_place
from iris_state.policy import Policy
from iris_state.records.compacted import encoder
from iris_state.snapshots import snapshot
from iris_state.snapshots.snapshot import Damaged, commit_of


class Examination(msgspec.Struct):
    """The result of an examination.

    Attributes:
        snapshots: every snapshot by name with its fault, empty when it is intact.
        begin: the last commit in the newest intact one, 0 without one.
        journal: first and last sequence that NATS says the journal has.
        end: the last sequence that is known to have existed, and ``proof`` names the source when
            that is not the journal.
        survey: the journal after ``begin``.
        last_published: the id of the last event that was published.
        lacking: entries after ``begin`` that one server cannot read and another can.
        touched: jobs that events of lost commits name.
        unlike: records of a snapshot that differ from a replay from the previous one.
        spare: ranges up to ``begin`` that the server's files do not hold: the newest intact
            snapshot has what they did.
    """

    snapshots: dict[str, str]
    begin: int
    journal: tuple[int, int]
    end: int
    proof: str
    survey: Survey
    last_published: str
    lacking: list[int]
    touched: list[str]
    unlike: list[str]
    spare: list[tuple[int, int]]
    salvaged: Salvaged

    @property
    def costs_nothing(self) -> bool:
        """Whether all that is damaged stands before the newest intact snapshot, so that no start
        needs it.
        """
        return bool(self.spare) and not (self.survey.lost or self.lacking)

    @property
    def is_startable(self) -> bool:
        """Whether a start goes on without a command, and loses nothing."""
        return self.costs_nothing or not self.is_damaged

    @property
    def is_damaged(self) -> bool:
        """Whether a state service cannot start, would start without some commits, or a replica has
        lost some.
        """
        first, last = self.journal
        return (
            bool(self.survey.lost or self.lacking)
            or last < self.end
            or (first > self.begin + 1 and last > self.begin)
        )


async def examine(stored: Stored, policy: Policy) -> Examination:
    """Read everything a state service starts from. Raises Unavailable, OtherVersion."""
    blobs = stored.connection.blobs(subjects.SNAPSHOTS_BUCKET)
    found, wrong = await _snapshots(blobs)
    begin, image = max(found.items(), default=(0, None))
    last_published = await last_published_event(stored)
    state = await stored.connection.raw(subjects.JOURNAL.name).state()
    first, last = (state.first_seq, state.last_seq) if state is not None else (0, 0)
    proofs = {
        last: "",
        begin: "the newest snapshot holds it",
        event_place(last_published)[0]: "its events were published",
        max(stored.on_disk, default=0): "the server's files hold it",
    }
    end = max(proofs)
    behind = survey(await stored.journal(begin, end), begin, end)
    return Examination(
        snapshots=wrong,
        begin=begin,
        journal=(first, last),
        end=end,
        proof=proofs[end] if end > last else "",
        survey=behind,
        last_published=last_published,
        lacking=stored.lacking,
        touched=await _touched(stored, behind.lost),
        unlike=await _unlike(stored, policy, found),
        spare=[(since, min(to, begin)) for since, to in stored.missing if since <= begin],
        salvaged=salvage(policy, image, behind),
    )


async def _snapshots(blobs: Blobs) -> tuple[dict[int, bytes], dict[str, str]]:
    """The intact snapshots by their last commit, and the fault of each snapshot. Raises
    OtherVersion, Unavailable.
    """
    found: dict[int, bytes] = {}
    wrong: dict[str, str] = {}
    for name in await blobs.names():
        if commit_of(name) is None:
            continue
        try:
            data = await blobs.get(name)
            if data is not None:
                found[snapshot.read(data).rest.sequence] = data
                wrong[name] = ""
        except (ValueError, Damaged) as error:
            wrong[name] = str(error)
    return found, wrong


async def last_published_event(stored: Stored) -> str:
    """The id of the last readable event in the stream; empty when there is none. Raises
    Unavailable.
    """
    raw = stored.connection.raw(subjects.EVENTS.name)
    state = await raw.state()
    if state is None:
        return ""
    newest = ""
    async for message in raw.readable(max(state.last_seq - 1000, 0), state.last_seq):
        newest = message.headers.get("Nats-Msg-Id", newest)
    return newest


async def _touched(stored: Stored, lost: list[Lost]) -> list[str]:
    """Names of jobs in events of lost commits. Raises Unavailable."""
    raw = stored.connection.raw(subjects.EVENTS.name)
    state = await raw.state() if lost else None
    names: set[str] = set()
    if state is not None:
        async for message in raw.readable(max(state.first_seq - 1, 0), state.last_seq):
            sequence, _ = event_place(message.headers.get("Nats-Msg-Id", ""))
            if any(one.first <= sequence <= one.last for one in lost):
                names.add(message.headers.get("Iris-Job", ""))
    return sorted(names - {""})


async def _unlike(stored: Stored, policy: Policy, found: Mapping[int, bytes]) -> list[str]:
    """The records in which the newest snapshot, taken by a leader, differs from a replay from the
    previous one.
    """
    if len(found) < 2:
        return []
    before, newest = sorted(found)[-2:]
    raw = stored.connection.raw(subjects.JOURNAL.name)
    between = survey(
        {message.sequence: message.data async for message in raw.readable(before, newest)},
        before,
        newest,
    )
    if between.lost:
        return []
    replayed = salvage(policy, found[before], between).machine
    ours = digests(snapshot.cut(replayed.ledger, newest, 0))
    theirs = digests(found[newest])
    return [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]


def digests(data: bytes) -> dict[str, str]:
    """A digest of each job of a snapshot, and of each other kind of record, for comparison."""
    image = snapshot.read(data)
    parts: dict[str, object] = {}
    for name, value in msgspec.structs.asdict(image.rest).items():
        if name not in _OF_THE_MOMENT:
            parts[name] = sorted(map(encoder.encode, value)) if isinstance(value, list) else value
    for job in (*image.compacted, *image.open):
        job.children = sorted(job.children)
        parts[f"job j{job.number}"] = job
    return {name: hashlib.sha256(_canonical(part)).hexdigest() for name, part in parts.items()}


def _canonical(part: object) -> bytes:
    return encoder.encode(dict(sorted(part.items())) if isinstance(part, dict) else part)


_OF_THE_MOMENT = frozenset({"sequence", "at_ms", "last_published"})
