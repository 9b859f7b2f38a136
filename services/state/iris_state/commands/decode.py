"""Decodes commands. Pure. See also: `commands.execute` carries them out."""

from __future__ import annotations

from typing import TypeAlias

from iris_core import codec, subjects
from iris_core.codec import Undecodable
from iris_core.limits import SENTENCE
from iris_core.messages.gateway_state import (
    AdminCommand,
    AmendJob,
    CancelJob,
    DeployCommand,
    GrowJob,
    HoldQueue,
    RequeueTasks,
    RerunJob,
    SubmitJob,
)
from iris_core.subjects import is_plain

UserCommand: TypeAlias = (
    SubmitJob | CancelJob | AdminCommand | RerunJob | AmendJob | RequeueTasks | GrowJob | HoldQueue | DeployCommand
)

_KINDS: dict[str, type[UserCommand]] = {
    subjects.CMD_SUBMIT: SubmitJob,
    subjects.CMD_CANCEL: CancelJob,
    subjects.CMD_ADMIN: AdminCommand,
    subjects.CMD_DEPLOY: DeployCommand,
    subjects.CMD_RERUN: RerunJob,
    subjects.CMD_AMEND: AmendJob,
    subjects.CMD_REQUEUE: RequeueTasks,
    subjects.CMD_GROW: GrowJob,
    subjects.CMD_QUEUE: HoldQueue,
}


def decode(subject: str, data: bytes) -> UserCommand:
    """The command that was sent to ``subject``. Raises Undecodable."""
    kind = _KINDS.get(subject)
    if kind is None:
        raise Undecodable(f"no command on {subject}")
    command = codec.unpack(data, kind)
    _check_lines(command)
    return command


def _check_lines(command: UserCommand) -> None:
    """Check that text that is sent on in a line of the NATS protocol fits into one line. Raises Undecodable."""
    traceparent = command.traceparent if isinstance(command, (SubmitJob, DeployCommand)) else ""
    key = command.idempotency_key if isinstance(command, SubmitJob) else ""
    if max(map(len, (command.request_id, traceparent, key))) > SENTENCE:
        raise Undecodable(f"an id of more than {SENTENCE} characters")
    if not is_plain(traceparent):
        raise Undecodable("a header that would break its line")
