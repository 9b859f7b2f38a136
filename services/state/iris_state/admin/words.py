"""The output of verification and repair, as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from iris_bus.streams.declarations import Difference
from iris_state.admin.examine import Examination
from iris_state.admin.survey import Lost

_NAMES = 20


def examination(found: Examination, *, all_names_in: str = "") -> Iterator[str]:
    """An examination as lines: what is stored, what is lost, what can be done about it.

    ``all_names_in``: a file that has the names of all jobs, so that many are not all repeated here;
        empty: every name is here.
    """
    for name, wrong in found.snapshots.items():
        yield f"{name}: {wrong or 'whole'}"
    first, last = found.journal
    yield f"journal: {first} to {last}; {len(found.survey.commits)} commits behind the snapshot of {found.begin}"
    if found.proof:
        yield f"the journal is cut off: commit {found.end} has existed, {found.proof}"
    if found.lacking:
        yield f"one server cannot read {len(found.lacking)} entries that another can, the first is {found.lacking[0]}"
    for lost in found.survey.lost:
        yield f"lost: {stretch(lost)}"
    if found.survey.lost:
        yield f"can be read: {_readable(found)}"
        yield f"jobs that events of lost commits speak of: {names(found.touched, all_names_in)}"
        yield f"jobs that stay as they were before the loss: {names(stopped(found), all_names_in)}"
        yield f"changes that can be read and mean nothing without those lost: {found.salvaged.left_out}"
    for since, to in found.spare:
        yield f"damaged, and not needed: entries {since} to {to}; the snapshot of {found.begin} has what they did"
    for record in found.unlike:
        yield f"the newest snapshot and the replay from the one before do not agree on: {record}"
    for wrong in found.salvaged.wrong:
        yield f"does not hold: {wrong}"
    jobs = len(found.salvaged.machine.ledger.jobs)
    yield f"records: {jobs} jobs, {len(found.salvaged.machine.ledger.workers)} workers, as of commit {found.end}"


def verdict(found: Examination, *, unsound: bool) -> str:
    if not found.is_startable:
        return "damaged: stop the state services and run `iris admin repair`"
    if unsound:
        return "not everything is as it should be"
    if found.costs_nothing:
        return "everything that is needed is whole; the next start, or `iris admin repair`, writes the journal anew"
    return "everything that is needed is whole"


def stretch(lost: Lost) -> str:
    """``commits 138 to 140, of between 2026-11-21T16:07:23.952Z and …``; a large commit is several
    entries.
    """
    which = f"{lost.first}" if lost.size == 1 else f"{lost.first} to {lost.last}"
    return f"entry {which} of the journal, between {moment(lost.after_ms)} and {moment(lost.before_ms)}"


def difference(one: Difference, *, applied: bool) -> str:
    """One setting of a stream that is not as wanted, and what becomes of it."""
    if one.fixed:
        return f"{one}; no server changes that: back up, delete the stream, and restore"
    if applied:
        return f"{one}; it is now as the settings say"
    return f"{one}; " + (
        "it stays, because that is less safe"
        if one.lowers
        else "a service changes it when it starts"
    )


def differences(found: Sequence[Difference], *, applied: bool) -> str:
    if not found:
        return "every stream is as the settings say"
    return (
        "done" if applied else "nothing was changed; --apply makes the streams as the settings say"
    )


def moment(at_ms: int) -> str:
    if not at_ms:
        return "an unknown time"
    return (
        datetime.fromtimestamp(at_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def names(some: list[str], all_names_in: str = "") -> str:
    """``/a, /b``: all of them, or as many as fit into a line and the file that has all."""
    if all_names_in and len(some) > _NAMES:
        return f"{', '.join(some[:_NAMES])} and {len(some) - _NAMES} more; {all_names_in} names all"
    return ", ".join(some) or "none"


def losses(found: Examination) -> str:
    """The text of a file: the examination, then every job with something lost on a line of its
    own.
    """
    lines = [
        *examination(found, all_names_in="the list below"),
        "",
        "# jobs that events of lost commits speak of",
        *found.touched,
        "",
        "# jobs that stay as they were before the loss",
        *stopped(found),
    ]
    return "".join(f"{line}\n" for line in lines)


def stopped(found: Examination) -> list[str]:
    """The jobs whose later changes cannot be applied, by name."""
    return [
        name or f"j{number}, of which only the number is known"
        for number, name in found.salvaged.stopped.items()
    ]


def _readable(found: Examination) -> str:
    commits = found.survey.commits
    return (
        f"{len(commits)} commits, {commits[0].sequence} to {commits[-1].sequence}"
        if commits
        else "no commit"
    )
