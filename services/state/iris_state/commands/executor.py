"""Executes each command once, however often it arrives, records it in the audit, and answers it as
of now.

What a command does is in `execute` and `deployments`; who may give it, in `task_scope`. Pure.
Source: docs/adr/0026-one-way-in-for-commands.md, docs/adr/0055-changes-record-their-actor.md.
"""

from __future__ import annotations

import msgspec

from iris_core.access.actor import actor_of
from iris_core.access.request_ids import key_of
from iris_core.codec import Undecodable
from iris_core.errors import Code, Invalid, Refused
from iris_core.messages.gateway_state import (
    AmendJob,
    Answer,
    Caller,
    CancelJob,
    DeployCommand,
    GrowJob,
    HoldQueue,
    RequeueTasks,
    RerunJob,
    SubmitJob,
    UserCommand,
)
from iris_state import views
from iris_state.commands import amend, execute, growth, targets, task_scope
from iris_state.commands.audited import audited
from iris_state.commands.decode import decode
from iris_state.commands.deployments import on_deploy
from iris_state.commands.queue_holds import on_hold_queue
from iris_state.decide.round import Round
from iris_state.effects.kinds import AnswerTo
from iris_state.inputs.kinds import Request
from iris_state.records.changes import Answered

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
        note = targets.note_of_owner(
            self._ledger, targets.target_of(user_command), user_command.caller
        )
        try:
            if self._ledger.answers.get(user_command.request_id) is None:
                user_command = targets.resolved_command(self._ledger, user_command)
            user_command = task_scope.allowed_command(self._ledger, user_command)
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
        begun, done = self._round.begun, audited(self._ledger, user_command)
        with self._round.acting(actor_of(user_command.caller)):
            answer = self._execute(user_command)
            self._round.settle()
        if done is not None and self._round.begun != begun:
            self._round.apply(done)
        return answer

    def _execute(self, user_command: UserCommand) -> tuple[str, bytes]:
        try:
            if isinstance(user_command, RerunJob):
                user_command = execute.rerun_of(self._ledger, user_command)
            if isinstance(user_command, SubmitJob):
                return self._submit(user_command)
            if isinstance(user_command, DeployCommand):
                return self._deploy(user_command)
            if isinstance(user_command, CancelJob):
                self._round.take(execute.on_cancel(self._ledger, user_command))
                self._round.settle()
                return "accepted", targets.known_target(self._ledger, user_command.job)[
                    0
                ].id.encode()
            if isinstance(user_command, AmendJob):
                self._round.take(amend.on_amend(self._ledger, user_command, self._round.now_ms))
                self._round.settle()
                return "accepted", targets.known_job(self._ledger, user_command.job).id.encode()
            if isinstance(user_command, GrowJob):
                self._round.take(growth.on_grow(self._ledger, user_command))
                self._round.settle()
                return "accepted", targets.known_job(self._ledger, user_command.job).id.encode()
            if isinstance(user_command, RequeueTasks):
                job, index = targets.known_target(self._ledger, user_command.target)
                self._round.take(execute.on_requeue(job, index, user_command))
                self._round.settle()
                return "accepted", job.id.encode()
            if isinstance(user_command, HoldQueue):
                self._round.take(on_hold_queue(self._ledger, user_command))
                return "accepted", views.queue_hold(self._ledger, user_command)
            self._round.take(execute.on_admin(self._ledger, user_command))
            return "accepted", views.admin(self._ledger, user_command)
        except Invalid as error:
            return error.code.value, views.refusal(error.detail, error.mistakes)
        except Refused as error:
            return error.code.value, views.refusal(error.detail)

    def _submit(self, user_command: SubmitJob) -> tuple[str, bytes]:
        before = execute.earlier(self._ledger, user_command)
        if before is not None:
            return "replayed", before.id.encode()
        user = execute.owner(self._ledger, user_command)
        live = self._ledger.job_of(user, user_command.spec.name)
        if user_command.if_exists == "keep" and live is not None and not live.is_terminal:
            execute.check_may_act_for(user_command.caller, user, "submit a job")
            return "ok", live.id.encode()
        for happening in execute.on_submit(self._ledger, user_command, self._round.now_ms):
            self._round.take([happening])
            self._round.settle()
        return "created", self._ledger.jobs[self._ledger.next_number - 1].id.encode()

    def _deploy(self, user_command: DeployCommand) -> tuple[str, bytes]:
        self._round.take(on_deploy(self._ledger, self._round.policy, user_command))
        self._round.settle()
        deployment = targets.known_deployment(self._ledger, user_command.name)
        self._round.reconcile(deployment.number)
        return "created" if user_command.action == "create" else "accepted", deployment.id.encode()
