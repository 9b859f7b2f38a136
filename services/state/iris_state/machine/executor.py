"""Executes each command once, however often it arrives, records it in the audit, and answers it as
of now.

What each kind of command does is in `table`. Pure.
Source: docs/adr/0026-one-way-in-for-commands.md, docs/adr/0055-changes-record-their-actor.md.
"""

from __future__ import annotations

import msgspec

from iris_core.access.actor import actor_of
from iris_core.access.request_ids import key_of
from iris_core.codec import Undecodable
from iris_core.errors import Code, Invalid, Refused
from iris_core.messages.gateway_state import Answer, Caller, UserCommand
from iris_state import views
from iris_state.commands.decode import decode
from iris_state.commands.table import COMMANDS
from iris_state.effects.kinds import AnswerTo
from iris_state.machine.round import Round
from iris_state.records import targets
from iris_state.records.changes import Answered, Audited, GroupsNoted
from iris_state.records.inputs import Request
from iris_state.views import task_scope

_FOUND = frozenset({"accepted", "ok"})
"""The statuses of answers with a job that existed before the command: a cancelled or a kept one."""
_JOB_ANSWERS = {"created": views.admitted, "ok": views.kept}


class CommandExecutor:
    """The commands of one machine."""

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._ledger = round_.ledger

    def on_command(self, request: Request) -> None:
        """Execute a command. The sender of one that cannot be decoded may retry: a later release
        may decode it.
        """
        try:
            user_command = decode(request.subject, request.data)
        except Undecodable as error:
            words = views.refusal(
                f"this release of the state service cannot read the command: {error}"
            )
            self._round.effects.append(
                AnswerTo(request.reply, Answer(Code.UNAVAILABLE.value, words))
            )
        else:
            self._execute_once(user_command, request.reply)

    def _execute_once(self, user_command: UserCommand, reply: str) -> None:
        """Execute each request once, however often it arrives."""
        kind = COMMANDS[type(user_command)]
        named = getattr(user_command, kind.target) if kind.target else ""
        note = targets.note_of_owner(self._ledger, named, user_command.caller)
        try:
            if self._ledger.answers.get(user_command.request_id) is None:
                user_command = targets.resolved_command(self._ledger, user_command, kind.target)
            user_command = task_scope.allowed_command(self._ledger, user_command, kind.scope)
        except Refused as error:
            refusal = Answer(error.code.value, views.refusal(error.detail))
            self._round.effects.append(AnswerTo(reply, refusal))
            return
        request = user_command.request_id
        known = self._ledger.answers.get(request)
        if known is None and key_of(request) in self._ledger.answers.keys_answered:
            words = "this idempotency key was used for a request that asked for something else"
            known = (Code.MISMATCH.value, views.refusal(words))
        elif known is None:
            known = self._execute_audited(user_command)
            self._round.apply(Answered(request, *known, user=user_command.caller.user))
        answer = self._shown(*known, user_command.caller)
        self._round.effects.append(AnswerTo(reply, msgspec.structs.replace(answer, note=note)))

    def _shown(self, status: str, body: bytes, caller: Caller) -> Answer:
        """The stored answer; a job is shown as it is now."""
        if body.startswith(b"j"):
            job = self._ledger.find_job(body.decode())
            if job is None:
                what = "is about" if status in _FOUND else "has made"
                words = views.refusal(
                    f"this request {what} job {body.decode()}, which has ended and is forgotten"
                )
                return Answer(Code.CONFLICT.value, words)
            word = _JOB_ANSWERS.get(status, views.job)
            body = word(self._ledger, job, caller)
        elif body.startswith(b"d"):
            deployment = self._ledger.deployments.get(int(body[1:]))
            if deployment is None:
                return Answer(
                    Code.CONFLICT.value,
                    views.refusal("the deployment of this request is forgotten"),
                )
            body = views.deployment(self._ledger, deployment, caller)
        return Answer(status, body)

    def _execute_audited(self, user_command: UserCommand) -> tuple[str, bytes]:
        """Execute a command as its caller, and put it into the audit if it has changed
        something.
        """
        self._note_groups(user_command.caller)
        begun = self._round.begun
        done = self._audited(user_command)
        with self._round.acting(actor_of(user_command.caller)):
            answer = self._execute(user_command)
            self._round.settle()
        if done is not None and self._round.begun != begun:
            self._round.apply(done)
        return answer

    def _note_groups(self, caller: Caller) -> None:
        """Keep the groups that the caller's token names: what is decided later, when nobody asks,
        is judged by them too.
        """
        known = self._ledger.groups.get(caller.user, ())
        if caller.groups is not None and caller.groups != known:
            self._round.apply(GroupsNoted(caller.user, caller.groups))

    def _audited(self, user_command: UserCommand) -> Audited | None:
        """The audit of a command if it changes something; None for one that is not audited, or
        about nothing known.
        """
        try:
            return COMMANDS[type(user_command)].audit(self._ledger, user_command)
        except Refused:  # then nothing is changed
            return None

    def _execute(self, user_command: UserCommand) -> tuple[str, bytes]:
        try:
            return COMMANDS[type(user_command)].execute(self._round, user_command)
        except Invalid as error:
            return error.code.value, views.refusal(error.detail, error.mistakes)
        except Refused as error:
            return error.code.value, views.refusal(error.detail)
