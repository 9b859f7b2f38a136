"""Who may do what: one matrix of verbs and roles, and the only function that compares roles.

Rights follow the owner of a record, never its name. What a task's token reaches of its owner's is
narrower still: its own subtree, see `iris_state` ``task_scope``. Pure. docs/rights.md is drawn from
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import NamedTuple

from iris_core.access.task_tokens import ROLE as TASK
from iris_core.messages.gateway_state import Caller

USER = "user"
ADMIN = "admin"
WORKER = "worker"
CALLER_ROLES = (USER, ADMIN, WORKER, TASK)


class Verb(Enum):
    """What a caller wants to do with a record; its value says it to a person."""

    COMMAND = "send any command"
    SUBMIT_FOR = "submit jobs and create deployments that belong to this user"
    SUBMIT_BELOW = "submit jobs below a job"
    SUBMIT_TO = "submit jobs and create deployments in a project"
    CHANGE = "change, hold, release, cancel and requeue a job"
    REPEAT = "rerun, replace and grow a job; change and delete a deployment"
    EXECUTE = "execute commands beside a task"
    READ_OUTPUT = "read what a task prints, its results and artifacts"
    READ_CODE = "read the environment and code of a job, and the last lines of its attempts"
    READ_USAGE = "read the usage of a user"
    READ_AUDIT = "read an entry of the audit, by who gave the command or owns the record"
    READ_ORIGIN = "read from which address and with which token a command came"
    USE_BUNDLE = "use uploaded code"
    HOLD = "hold the pending jobs of a user"
    RELEASE = "release a hold on the queue"
    NOTIFY = (
        "use, see the address of, test, pause and remove a target of messages; see its messages"
    )
    EXCEED_BAND = "ask for a band above the default of users without a quota"
    SET_BELOW = "set and remove the projects below a project"
    SET_MEMBERS = "set the members of a project, and for whom it is the default"
    ADMINISTER = "drain hosts, set quotas and pools, and whatever else concerns the whole cluster"


class Membership(IntEnum):
    """What somebody is in a project: that of a record, or the one that is asked for."""

    NONE = 0
    MEMBER = 1
    ADMIN = 2


_NOBODY: frozenset[str] = frozenset()


class Right(NamedTuple):
    """Roles that may do something with their own records, with those of others, and as members or
    admins of a project with what is in it.
    """

    own: frozenset[str]
    others: frozenset[str]
    members: frozenset[str] = _NOBODY
    project_admins: frozenset[str] = _NOBODY


_EVERYBODY = frozenset(CALLER_ROLES)
_PEOPLE = frozenset({USER, ADMIN, TASK})
_USERS = frozenset({USER, ADMIN})
_ADMINS = frozenset({ADMIN})
_USER = frozenset({USER})

RIGHTS: Mapping[Verb, Right] = {
    Verb.COMMAND: Right(own=_PEOPLE, others=_PEOPLE),
    Verb.SUBMIT_FOR: Right(own=_PEOPLE, others=_ADMINS),
    Verb.SUBMIT_BELOW: Right(own=_PEOPLE, others=_ADMINS),
    Verb.SUBMIT_TO: Right(own=_ADMINS, others=_ADMINS, members=_PEOPLE, project_admins=_PEOPLE),
    Verb.CHANGE: Right(own=_PEOPLE, others=_ADMINS, project_admins=_USER),
    Verb.REPEAT: Right(own=_PEOPLE, others=_ADMINS),
    Verb.EXECUTE: Right(own=_PEOPLE, others=_ADMINS),
    Verb.READ_OUTPUT: Right(own=_EVERYBODY, others=_ADMINS),
    Verb.READ_CODE: Right(own=_EVERYBODY, others=_ADMINS),
    Verb.READ_USAGE: Right(own=_EVERYBODY, others=_ADMINS),
    Verb.READ_AUDIT: Right(own=_EVERYBODY, others=_ADMINS),
    Verb.READ_ORIGIN: Right(own=_EVERYBODY, others=_ADMINS),
    Verb.USE_BUNDLE: Right(own=_EVERYBODY, others=_ADMINS),
    Verb.HOLD: Right(own=_USERS, others=_ADMINS),
    Verb.RELEASE: Right(own=_USERS, others=_ADMINS),
    Verb.NOTIFY: Right(own=_USERS, others=_ADMINS),
    Verb.EXCEED_BAND: Right(own=_ADMINS, others=_ADMINS),
    Verb.SET_BELOW: Right(own=_ADMINS, others=_ADMINS, project_admins=_USER),
    Verb.SET_MEMBERS: Right(own=_ADMINS, others=_ADMINS, project_admins=_USER),
    Verb.ADMINISTER: Right(own=_ADMINS, others=_ADMINS),
}


def may(
    caller: Caller, verb: Verb, owner: str | None = None, membership: Membership = Membership.NONE
) -> bool:
    """Whether a caller may do this with a record of ``owner``; None: with one of anybody.

    ``membership``: the caller's in the project of the record.
    """
    right = RIGHTS[verb]
    roles = right.own if owner is not None and owner == caller.user else right.others
    if caller.role in roles or membership is Membership.NONE:
        return caller.role in roles
    return caller.role in (
        right.project_admins if membership is Membership.ADMIN else right.members
    )


def is_task(caller: Caller) -> bool:
    """Whether a request came with the token of an attempt."""
    return caller.role == TASK
