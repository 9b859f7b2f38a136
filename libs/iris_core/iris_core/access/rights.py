"""Who may do what: one matrix of verbs and roles, and the only function that compares roles.

Rights follow the owner of a record, never its name. What a task's token reaches of its owner's is
narrower still: its own subtree, see `iris_state` ``task_scope``. Pure. docs/rights.md is drawn from
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
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
    CHANGE = "change, cancel, requeue, rerun and replace a job; change and delete a deployment"
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
    ADMINISTER = "drain hosts, set quotas and pools, and whatever else concerns the whole cluster"


class Right(NamedTuple):
    """Roles that may do something with their own records, and with those of others."""

    own: frozenset[str]
    others: frozenset[str]


_EVERYBODY = frozenset(CALLER_ROLES)
_PEOPLE = frozenset({USER, ADMIN, TASK})
_USERS = frozenset({USER, ADMIN})
_ADMINS = frozenset({ADMIN})

RIGHTS: Mapping[Verb, Right] = {
    Verb.COMMAND: Right(own=_PEOPLE, others=_PEOPLE),
    Verb.SUBMIT_FOR: Right(own=_PEOPLE, others=_ADMINS),
    Verb.SUBMIT_BELOW: Right(own=_PEOPLE, others=_ADMINS),
    Verb.CHANGE: Right(own=_PEOPLE, others=_ADMINS),
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
    Verb.ADMINISTER: Right(own=_ADMINS, others=_ADMINS),
}


def may(caller: Caller, verb: Verb, owner: str | None = None) -> bool:
    """Whether a caller may do this with a record of ``owner``; None: with one of anybody."""
    right = RIGHTS[verb]
    roles = right.own if owner is not None and owner == caller.user else right.others
    return caller.role in roles


def is_task(caller: Caller) -> bool:
    """Whether a request came with the token of an attempt."""
    return caller.role == TASK
