"""The exit codes of `iris`, for scripts."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Stable: a code never gets a second meaning."""

    SUCCEEDED = 0
    UNEXPECTED = 1
    USAGE = 2
    JOB_FAILED = 3
    UNSCHEDULABLE = 4
    KILLED = 5
    WORKER_FAILED = 6
    WAIT_TIMEOUT = 7
    UNREACHABLE = 8
    NOT_ALLOWED = 9
    NOT_FOUND = 10
    CONFLICT = 11
    PLAN_NOT_NOW = 12
    PLAN_NEVER = 13
    DAMAGED = 65
    TRY_AGAIN = 75
    DETACHED = 130
    EXECUTION_LOST = 255


JOB_EXITS = {
    "succeeded": ExitCode.SUCCEEDED,
    "failed": ExitCode.JOB_FAILED,
    "unschedulable": ExitCode.UNSCHEDULABLE,
    "killed": ExitCode.KILLED,
    "worker_failed": ExitCode.WORKER_FAILED,
}
"""The exit code for each end of a job."""

PLAN_EXITS = {
    "now": ExitCode.SUCCEEDED,
    "after_preemption": ExitCode.SUCCEEDED,
    "not_now": ExitCode.PLAN_NOT_NOW,
    "never": ExitCode.PLAN_NEVER,
}

HTTP_EXITS = {
    401: ExitCode.NOT_ALLOWED,
    403: ExitCode.NOT_ALLOWED,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    410: ExitCode.CONFLICT,
    412: ExitCode.CONFLICT,
    429: ExitCode.TRY_AGAIN,
    502: ExitCode.TRY_AGAIN,
    503: ExitCode.TRY_AGAIN,
    504: ExitCode.TRY_AGAIN,
}


def exit_of_answer(status: int) -> ExitCode:
    """The code for an HTTP status of 400 or more: any other refusal is the caller's mistake, any
    other 5xx a bug.
    """
    return HTTP_EXITS.get(status, ExitCode.USAGE if status < 500 else ExitCode.UNEXPECTED)
