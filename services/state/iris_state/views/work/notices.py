"""What attempts were told of their stops, as views and as a sentence."""

from __future__ import annotations

from datetime import UTC, datetime

from iris_core.moments import show_duration
from iris_core.states import Cause, NoticeReason
from iris_core.units import show_bytes
from iris_core.views.jobs import NoticeView, moment
from iris_state.policy import GraceLimits
from iris_state.records.entities import Attempt, Job

_WHY = {
    NoticeReason.TIMEOUT: "its time limit is near",
    NoticeReason.DRAIN: "its worker is drained",
    NoticeReason.PREEMPTED: "it is preempted",
    NoticeReason.SPOT: "its worker is taken away",
}


def notice_views(attempt: Attempt) -> list[NoticeView]:
    """The notices of an attempt, oldest first."""
    return [
        NoticeView(
            reason=notice.reason.value,
            at=moment(notice.at_ms),
            deadline_at=moment(notice.deadline_ms),
        )
        for notice in attempt.notices
    ]


def note_of_stop(record: Job, attempt: Attempt, limits: GraceLimits, now_ms: int) -> str:
    """That an attempt is told to stop, or was given notice of it, and until when it may run; empty
    when it was not.
    """
    if (ending := attempt.ending) is not None:
        until_ms = ending.since_ms + limits.of(
            record.spec.grace_ms(limits.unstated_ms), ending.cause
        )
        words = f"told to stop: {ending.note}"
        if attempt.at_once:
            return f"{words}; it is killed now"
        if now_ms > until_ms:
            return f"{words}; its end was due at {_moment(until_ms)}, and its worker has not reported it"
        return f"{words}; it is killed at {_moment(until_ms)}, and exit 0 before that is success"
    if not attempt.notices:
        return ""
    last = attempt.notices[-1]
    until = f", it has until {_moment(last.deadline_ms)}" if last.deadline_ms else ", it goes on"
    return f"was given notice: {_WHY[last.reason]}{until}"


def note_of_early_end(attempt: Attempt) -> str:
    """Why an attempt that has succeeded had been told to stop, so that its exit 0 may not say that
    its work is done; empty when it had not been.
    """
    why = attempt.ending.note if attempt.ending is not None else ""
    why = why or next(
        (_WHY[notice.reason] for notice in reversed(attempt.notices) if notice.deadline_ms), ""
    )
    return f"ended with 0, which is success, after it was told to stop: {why}" if why else ""


def note_of_killed_part(attempt: Attempt) -> str:
    """That the kernel has killed a process of an attempt for its memory limit, though it has
    succeeded; empty when it has not.
    """
    limit_bytes = attempt.usage.memory_limit_bytes if attempt.usage is not None else 0
    if not limit_bytes:
        return ""
    return (
        f"a process of it was killed at its memory limit of {show_bytes(limit_bytes)}, and its command went on: "
        "its work may be incomplete; ask for more with --memory"
    )


def _moment(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def shortened_grace(
    limits: GraceLimits, name: str, asked_ms: int, *, may_be_preempted: bool = False
) -> list[str]:
    """That the grace period which a job or a deployment asks for is longer than this cluster gives;
    empty when it is not.
    """
    given_ms = limits.of(asked_ms, None)
    preempted_ms = limits.of(asked_ms, Cause.PREEMPTED)
    found = []
    if given_ms < asked_ms:
        found.append(
            f"{name} asks for a grace period of {_seconds(asked_ms)}, and has {_seconds(given_ms)}: "
            "the cluster gives no more ([state] max_grace_s)"
        )
    if preempted_ms < given_ms and may_be_preempted:
        found.append(
            f"where {name} makes room for work of a higher band it has {_seconds(preempted_ms)} of its "
            f"grace period of {_seconds(given_ms)} ([state] max_preempted_grace_s)"
        )
    return found


def _seconds(ms: int) -> str:
    return show_duration(ms / 1000)
