"""Decodes the messages of the inbox. Pure. See also: `commands.execute` carries them out."""

from __future__ import annotations

from typing import Any, TypeAlias

from iris_core import codec
from iris_core.codec import Undecodable
from iris_core.limits import SENTENCE
from iris_core.messages import AdminCommand, CancelJob, DeployCommand, RerunJob, SubmitJob
from iris_core.subjects import is_plain

UserCommand: TypeAlias = SubmitJob | CancelJob | AdminCommand | RerunJob | DeployCommand


def check_lines(command: UserCommand) -> None:
    """Check that text that is sent on in a line of the NATS protocol fits into one line. Raises Undecodable."""
    traceparent = command.traceparent if isinstance(command, (SubmitJob, DeployCommand)) else ""
    key = command.idempotency_key if isinstance(command, SubmitJob) else ""
    if max(map(len, (command.request_id, command.answer_to, traceparent, key))) > SENTENCE:
        raise Undecodable(f"an id or a subject of more than {SENTENCE} characters")
    if not (is_plain(command.answer_to) and is_plain(traceparent)):
        raise Undecodable("a subject or header that would break its line")


def sender_of(data: bytes, kind: type[UserCommand]) -> str:
    """The reply subject of a command that cannot be decoded as a whole; empty when it cannot be decoded either."""
    try:
        words = codec.unpack(data, list[Any])
    except Undecodable:
        return ""
    place = kind.__struct_fields__.index("answer_to")
    sender = words[place] if len(words) > place else ""
    return sender if isinstance(sender, str) and is_plain(sender) else ""
