"""Decodes commands. Pure. See also: `commands.execute` carries them out."""

from __future__ import annotations

from iris_core import codec
from iris_core.codec import Undecodable
from iris_core.limits import SENTENCE
from iris_core.messages.gateway_state import SUBJECT_OF, DeployCommand, SubmitJob, UserCommand
from iris_core.subjects import is_plain

_KINDS = {subject: kind for kind, subject in SUBJECT_OF.items()}


def decode(subject: str, data: bytes) -> UserCommand:
    """The command that was sent to ``subject``. Raises Undecodable."""
    kind = _KINDS.get(subject)
    if kind is None:
        raise Undecodable(f"no command on {subject}")
    command = codec.unpack(data, kind)
    _check_lines(command)
    return command


def _check_lines(command: UserCommand) -> None:
    """Check that text that is sent on in a line of the NATS protocol fits into one line. Raises
    Undecodable.
    """
    traceparent = command.traceparent if isinstance(command, (SubmitJob, DeployCommand)) else ""
    key = command.idempotency_key if isinstance(command, SubmitJob) else ""
    if max(map(len, (command.request_id, traceparent, key))) > SENTENCE:
        raise Undecodable(f"an id of more than {SENTENCE} characters")
    if not is_plain(traceparent):
        raise Undecodable("a header that would break its line")
