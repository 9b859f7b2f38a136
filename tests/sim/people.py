"""Simulated users: they submit, cancel and rerun their jobs, and repeat requests until these are
answered.

They remember every promise they were given; the judge holds the cluster to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from iris_bus.contract import Unavailable
from iris_core import codec, subjects
from iris_core.errors import Code
from iris_core.limits import SENTENCE
from iris_core.messages.gateway_state import (
    BEHIND,
    AdminCommand,
    AmendJob,
    Answer,
    Caller,
    CancelJob,
    DeployCommand,
    GrowJob,
    HoldQueue,
    ProjectCommand,
    Query,
    RequeueTasks,
    SubmitJob,
)
from iris_core.spec.exit_rules import ExitRule
from iris_core.spec.jobs import (
    MAX_COMMAND_BYTES,
    MAX_ENV_BYTES,
    MAX_TEXT,
    MAX_VALUES,
    Constraint,
    Coscheduling,
    Dependency,
    JobSpec,
    NoticePolicy,
    Probe,
    StopPolicy,
)
from iris_core.spec.resources import ResourceRequest
from iris_core.spec.serving import DeploymentSpec, RouteTemplate, UpdatePolicy
from iris_core.states import ConstraintOp
from iris_core.subjects import STATE_QUERY, STATE_READ
from iris_gateway.commands import Commands
from iris_gateway.http.problem import ProblemResponse
from tests.sim.network import Link
from tests.sim.open_jobs import waits_for
from tests.sim.plans import respecified

Command: TypeAlias = (
    SubmitJob
    | CancelJob
    | GrowJob
    | AmendJob
    | HoldQueue
    | RequeueTasks
    | AdminCommand
    | DeployCommand
    | ProjectCommand
)
_SUBJECTS: dict[type[Command], str] = {
    SubmitJob: subjects.CMD_SUBMIT,
    CancelJob: subjects.CMD_CANCEL,
    AmendJob: subjects.CMD_AMEND,
    GrowJob: subjects.CMD_GROW,
    HoldQueue: subjects.CMD_QUEUE,
    RequeueTasks: subjects.CMD_REQUEUE,
    AdminCommand: subjects.CMD_ADMIN,
    ProjectCommand: subjects.CMD_PROJECT,
    DeployCommand: subjects.CMD_DEPLOY,
}

_RETRY_S = 1.0
_LOOK_S = 0.7
_PATIENCE_S = 3.0
"""So long one gateway may take before the other is asked as well."""
_TRIES = 400
SETTLED_S = 180.0
_IN_ITS_WAY = frozenset(
    {"crash_loop", "back_off", "update_failed", "paused", "waiting_for_capacity"}
)
_GIVES_UP = 5
"""Of so many submissions and cancellations one is not sent again after its gateways have given
up.
"""
_FORGOTTEN = re.compile(rb"has made job j(\d+), which has ended and is forgotten")


@dataclass
class Promises:
    """What people were told.

    Attributes:
        created: job number by request id. keys: the job numbers each idempotency key was answered
            with.
        names: the name of each promised job. missed: promised jobs that somebody was told do not
            exist.
        forgotten: jobs that were said to be forgotten, each with the position of that answer.
        unsettled: deployments that were neither ready nor said why not when nothing was done to the
            cluster any more.
        given_up: requests that nobody repeats any more, though they were not answered. unlike:
            requests that were answered with different jobs. grown: the files of calls that were
                accepted.
    """

    created: dict[str, int] = field(default_factory=dict)
    keys: dict[str, set[int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    missed: list[int] = field(default_factory=list)
    forgotten: list[tuple[int, int]] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)
    given_up: set[str] = field(default_factory=set)
    unlike: list[str] = field(default_factory=list)
    grown: set[str] = field(default_factory=set)
    asked: int = 0
    answered: int = 0

    def note(self, request: SubmitJob, answer: Answer) -> None:
        """An answer names the job that the request has made; who asks again late may hear that it
        is forgotten.
        """
        if answer.status in ("created", "replayed"):
            body = codec.from_json(answer.body, dict)
            number, name = int(body["id"][1:]), body["name"]
        elif found := _FORGOTTEN.search(answer.body):
            number, name = int(found[1]), request.spec.name
            self.forgotten.append((number, answer.position))
        else:
            return
        if self.created.setdefault(request.request_id, number) != number:
            self.unlike.append(request.request_id)
        self.names[number] = name
        if request.idempotency_key:
            self.keys.setdefault(request.idempotency_key, set()).add(number)

    def note_cancelled(self, request: CancelJob, answer: Answer) -> None:
        """Whoever was promised a job, and cancels it after that, is told that there is none only if
        it is forgotten.
        """
        number = self.created.get(f"r{request.request_id[1:]}")
        if answer.status == Code.NOT_FOUND and number is not None:
            self.forgotten.append((number, answer.position))

    def give_up(self, request: str) -> None:
        self.given_up.add(request)
        self.answered += 1


class People:
    """Everybody who uses the gateway.

    Args:
        plan: when what is wanted, made beforehand, so that chance is drawn in one place.
        calm_s: after which nothing is done to the cluster any more.
        is_needless: whether something that was planned is not wanted any more.
    """

    def __init__(
        self,
        link: Link,
        promises: Promises,
        plan: list[tuple[float, object]],
        calm_s: float,
        is_needless: Callable[[Command], bool],
    ) -> None:
        self._bus = link.bus
        self._gateways = [Commands(self._bus, new_id=str, now_ms=int) for _ in range(2)]
        self._promises = promises
        self._plan = plan
        self._calm_s = calm_s
        self._is_needless = is_needless
        self._looks = self._sent = self._position = 0
        self._asking: set[asyncio.Task[str]] = set()

    def want(self, command: Command) -> None:
        """Something that was not planned."""
        self._promises.asked += 1
        asking = asyncio.get_running_loop().create_task(self._ask(command))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        looking = loop.create_task(self._look())
        asking: dict[str, asyncio.Task[str]] = {}
        drains = (
            command
            for _, command in self._plan
            if isinstance(command, AdminCommand) and command.action == "drain"
        )
        drained = next(drains, None)
        created = [
            command
            for _, command in self._plan
            if isinstance(command, DeployCommand) and command.action == "create"
        ]
        held = [
            command
            for _, command in self._plan
            if isinstance(command, AmendJob | HoldQueue) and command.hold
        ]
        self._promises.asked += (drained is not None) + len(created) + len(held)
        for at, command in self._plan:
            assert isinstance(command, Command)
            await asyncio.sleep(max(0.0, began + at - loop.time()))
            if self._is_needless(command):
                continue
            self._promises.asked += 1
            request = command.request_id
            before = asking.get(
                f"r{request[1:]}" if isinstance(command, CancelJob) else waits_for(request)
            )
            asking[command.request_id] = loop.create_task(self._ask(command, before))
        await asyncio.gather(*asking.values())
        if drained is not None:  # a late drain may have come after its end
            await self._ask(
                msgspec.structs.replace(drained, action="undrain", request_id="undrain-at-last")
            )
        for command in held:  # a late hold may have come after its release
            release = msgspec.structs.replace(command, request_id=f"{command.request_id}-at-last")
            if isinstance(release, AmendJob):
                release = msgspec.structs.replace(release, hold=False, stop=False)
            await self._ask(release)
        await asyncio.sleep(max(0.0, began + self._calm_s - loop.time()))
        await asyncio.gather(*(self._settle(command.name) for command in created))
        for command in created:  # a late create may have come after every other word about it
            delete = msgspec.structs.replace(
                command, action="delete", spec=None, request_id=f"{command.name}-at-last"
            )
            while await self._ask(delete) == Code.INTERNAL:  # judging it raised, as a fault wanted
                self._promises.asked += 1
                delete = msgspec.structs.replace(delete, request_id=f"{delete.request_id}-again")
        await looking

    async def _settle(self, name: str) -> None:
        """Wait until a deployment is as its owner wants it, or says why it is not."""
        question = codec.pack(Query("deployment", {"deployment": name}, USER, self._position))
        until_s, last = asyncio.get_running_loop().time() + SETTLED_S, b""
        while asyncio.get_running_loop().time() < until_s:
            with contextlib.suppress(Unavailable):
                answer = await self._read(question)
                last = answer.body
                if answer.status == "not_found" or (answer.status == "ok" and _is_settled(last)):
                    return
            await asyncio.sleep(_RETRY_S)
        self._promises.unsettled.append(f"{name}: {last.decode()}")

    async def _ask(self, command: Command, before: asyncio.Task[str] | None = None) -> str:
        """Until there is an answer; the same request every time. The answer's status, empty for who
        gives up.

        ``before``: what the same client has asked for before; it waits for that answer.
        """
        if before is not None:
            await before
        self._sent += 1
        gives_up = isinstance(command, SubmitJob | CancelJob) and self._sent % _GIVES_UP == 0
        for number in range(_TRIES):
            answer = await self._through_gateways(command, first=number % 2)
            if answer is not None:
                return answer.status
            if gives_up:
                break
            await asyncio.sleep(_RETRY_S)
        self._promises.give_up(command.request_id)
        return ""

    async def _through_gateways(self, command: Command, first: int) -> Answer | None:
        """Through one gateway, and the other as well when that takes long, while the first goes on
        repeating it.

        None when neither was answered in its time; all answers are noted.
        """
        one, other = self._gateways[first], self._gateways[1 - first]
        trying = [asyncio.create_task(self._send(one, command))]
        await asyncio.wait(trying, timeout=_PATIENCE_S)
        if not trying[0].done():
            trying.append(asyncio.create_task(self._send(other, command)))
        answers = [answer for answer in await asyncio.gather(*trying) if answer is not None]
        if answers:
            self._promises.answered += 1
        for answer in answers:
            self._note(command, answer)
        return answers[0] if answers else None

    async def _send(self, gateway: Commands, command: Command) -> Answer | None:
        with contextlib.suppress(ProblemResponse):
            return await gateway.send(_SUBJECTS[type(command)], codec.pack(command))
        return None

    async def _look(self) -> None:
        """Now and then look after a job that was promised: it must be there for whoever asks after
        that.
        """
        while True:
            await asyncio.sleep(_LOOK_S)
            numbers = list(self._promises.names)
            if not numbers:
                continue
            self._looks += 1
            number = numbers[self._looks % len(numbers)]
            question = codec.pack(Query("job", {"job": f"j{number}"}, USER, self._position))
            with contextlib.suppress(Unavailable):
                answer = await self._read(question)
                if answer.status == "not_found":
                    self._promises.missed.append(number)

    async def _read(self, question: bytes) -> Answer:
        """As a gateway does it: a replica that follows is asked first, and the leader when that is
        not far enough.
        """
        with contextlib.suppress(Unavailable):
            answer = codec.unpack(
                (await self._bus.request(STATE_READ, question, timeout=1.0)).data, Answer
            )
            if answer.status != BEHIND:
                return answer
        return codec.unpack(
            (await self._bus.request(STATE_QUERY, question, timeout=1.0)).data, Answer
        )

    def _note(self, command: Command, answer: Answer) -> None:
        self._position = max(self._position, answer.position)
        if isinstance(command, SubmitJob):
            self._promises.note(command, answer)
        elif isinstance(command, CancelJob):
            self._promises.note_cancelled(command, answer)
        elif isinstance(command, GrowJob) and answer.status == "accepted":
            self._promises.grown.update(command.segments)


def _is_settled(body: bytes) -> bool:
    """Whether a deployment is ready with every route that is wanted, or gone, or tells its owner
    what is in its way.
    """
    seen = codec.from_json(body, dict)
    told = {condition["code"] for condition in seen["conditions"]} & _IN_ITS_WAY
    if seen["status"] in ("destroying", "destroyed"):
        return True
    if seen["live"] == seen["replicas"] <= seen["available"]:
        update = seen["update"]
        return seen["status"] == "ready" or bool(told and update and update["old"])
    return bool(told)


USER = Caller("ann", "user", token="issuer", groups=("lab", "ops"))
NEIGHBOUR = Caller("bob", "user")
"""Has jobs of the same names now and then."""
ADMIN = Caller("root", "admin")


def wishes(
    rng: random.Random, jobs: int, seconds: float, hosts: list[str], *, large: bool
) -> list[tuple[float, object]]:
    """A plan: plain, retrying, nested, coscheduled, timed and hopeless jobs; cancellations; hosts
    drained and back.

    Sometimes in a rush, and, where they are ``large``, of sizes up to every limit.
    """
    plan: list[tuple[float, object]] = []
    names: dict[str, float] = {}
    busy_s = seconds * rng.choice((0.7, 0.7, 0.1))
    for number in range(jobs):
        at = rng.random() * busy_s
        spec = _spec(rng, number, list(names))
        if large and rng.random() < 0.5:
            spec = _enlarged(rng, spec)
        above = names.get(spec.name.rpartition("/")[0])
        if above is not None:
            at = above + rng.random() * 4.0  # while its parent is likely to live
        if_exists = rng.choice(("error", "replace", "replace")) if spec.name in names else "error"
        caller = NEIGHBOUR if spec.name in names and number % 2 else USER
        spec = msgspec.structs.replace(spec, user=caller.user)
        names[spec.name] = at
        key = f"key-{number}" if rng.random() < 0.3 else ""
        plan.append(
            (at, SubmitJob(spec, caller, f"r{number}", 1, idempotency_key=key, if_exists=if_exists))
        )
        if key and rng.random() < 0.5:
            plan.append(
                (
                    at + rng.random() * 5,
                    SubmitJob(spec, caller, f"s{number}", 1, idempotency_key=key),
                )
            )
        if rng.random() < 0.15:
            why = "z" * (SENTENCE if large else 0)
            plan.append((at + rng.random() * 10, CancelJob(spec.name, USER, f"c{number}", 1, why)))
    limits = {"max_pending_tasks": 10_000}  # a limit of what runs keeps large tasks waiting
    plan.append((seconds / 4, AdminCommand("set_quota", "@lab", ADMIN, "lab", 1, limits)))
    if rng.random() < 0.5:
        host = rng.choice(hosts)
        at = rng.random() * seconds / 2
        plan.append((at, AdminCommand("drain", host, ADMIN, "drain", 1)))
        plan.append((at + 15, AdminCommand("undrain", host, ADMIN, "undrain", 1)))
    if rng.random() < 0.2:
        plan.append(
            (rng.random() * seconds, AdminCommand("mark_lost", rng.choice(hosts), ADMIN, "lost", 1))
        )
    return sorted(plan, key=lambda each: each[0])


GATED = 0.5
"""In so many storms jobs wait for each other, for a time, or for the last one of their key."""


def gated(rng: random.Random, plan: list[tuple[float, object]]) -> list[tuple[float, object]]:
    """The same plan, in some worlds with jobs that wait; a repeated submission waits for the
    same.
    """
    if rng.random() >= GATED:
        return plan
    before: list[str] = []

    def waiting(spec: JobSpec) -> JobSpec:
        made = _waiting(rng, spec, before)
        before.append(spec.name)
        return made

    return respecified(plan, waiting)


def _waiting(rng: random.Random, spec: JobSpec, before: list[str]) -> JobSpec:
    """The job, perhaps behind gates; all of them open in time, or never."""
    kind = rng.random()
    if before and kind < 0.4:
        names = rng.sample(before, min(len(before), rng.choice((1, 1, 2))))
        each = not spec.is_gang and rng.random() < 0.3
        after = tuple(
            Dependency(name, rng.choice(("ok", "any", "any", "notok", "start")), each)
            for name in names
        )
        return msgspec.structs.replace(spec, after=after)
    if kind < 0.55:
        return msgspec.structs.replace(spec, singleton=rng.choice(("k", "l")))
    return (
        msgspec.structs.replace(spec, not_before=rng.choice(("2s", "9s"))) if kind < 0.65 else spec
    )


def checkpointed(
    rng: random.Random, plan: list[tuple[float, object]]
) -> list[tuple[float, object]]:
    """The same plan, with jobs that have notices, go on after their time limit, or are protected
    from preemption.
    """
    return respecified(plan, lambda spec: _with_checkpoints(rng, spec))


def _with_checkpoints(rng: random.Random, spec: JobSpec) -> JobSpec:
    fields: dict[str, object] = {}
    if rng.random() < 0.4:
        fields["notice"] = NoticePolicy(before_s=0.5)
        fields["stop"] = StopPolicy(grace_s=rng.choice((0.5, 2.0)))
    if spec.timeout_s is not None and rng.random() < 0.5:
        fields |= {"on_timeout": "requeue", "max_requeues": rng.choice((0, 1, 2))}
    if rng.random() < 0.3:
        fields["protect_s"] = rng.choice((1.0, 6.0))
    return msgspec.structs.replace(spec, **fields)


def requeued(rng: random.Random, plan: list[tuple[float, object]]) -> list[tuple[float, object]]:
    """The same plan, with requeues of some jobs and of some first tasks; who asks has not always
    the right moment.
    """
    made = list(plan)
    for at, command in plan:
        if isinstance(command, SubmitJob) and rng.random() < 0.3:
            target = command.spec.name + rng.choice(("", "/0"))
            number = f"q{command.request_id}"
            made.append((at + rng.random() * 10, RequeueTasks(target, USER, number, 1)))
    return sorted(made, key=lambda each: each[0])


PROBE = Probe(interval_s=2.0, failures=2, start_timeout_s=8.0, grace_s=4.0)


def rollouts(rng: random.Random, seconds: float) -> list[tuple[float, object]]:
    """A plan for deployments, in some worlds: created, updated to what serves and to what does not,
    scaled, held.

    The command says what a version is: ``good``, ``bad`` (it exits at once) or ``never`` (it never
        gets healthy).
    """
    plan: list[tuple[float, object]] = []
    for number in range(rng.choice((0, 0, 1, 1, 2))):
        name, at = f"serve-{number}", rng.random() * 8
        for turn in range(rng.randint(2, 7)):
            action = (
                rng.choice(("update", "update", "scale", "rollback", "pause", "resume"))
                if turn
                else "create"
            )
            spec = _deployment(rng, name) if action in ("create", "update") else None
            request = f"{name}-{turn}"
            plan.append(
                (
                    at,
                    DeployCommand(action, name, USER, request, 1, spec, replicas=rng.randint(0, 4)),
                )
            )
            at += rng.random() * seconds / 5
        if rng.random() < 0.3:
            plan.append((at, DeployCommand("delete", name, USER, f"{name}-delete", 1)))
    return plan


def _deployment(rng: random.Random, name: str) -> DeploymentSpec:
    surge = rng.choice((0, 1, 1, 2, "50%"))
    unavailable = rng.choice((0, 1)) if surge else 1
    return DeploymentSpec(
        name=name,
        template=RouteTemplate(
            command=("serve", rng.choice(("good", "good", "good", "bad", "never"))),
            env={"TURN": str(rng.random())},
            resources=ResourceRequest(cpu_millis=rng.choice((500, 1000, 4000))),
            band=rng.choice(("production", "interactive", "batch")),
            probe=PROBE,
        ),
        replicas=rng.randint(0, 4),
        update=UpdatePolicy(
            max_surge=surge,
            max_unavailable=unavailable,
            min_ready_s=rng.choice((0.0, 1.0, 3.0)),
            progress_deadline_s=12.0,
            pause_after=rng.choice((None, None, 1)),
            rollback=rng.random() < 0.8,
        ),
        settle_s=0.5,
        grace_s=1.0,
    )


def _enlarged(rng: random.Random, spec: JobSpec) -> JobSpec:
    """The same job as large as one may be, in its environment, its command, its constraints, or all
    of it.
    """
    env = {"PADDING": "e" * (MAX_ENV_BYTES - 10)}
    command = (*spec.command, "c" * (MAX_COMMAND_BYTES - 100))
    racks = tuple(f"{rack:v>{MAX_TEXT}}" for rack in range(MAX_VALUES - 2))
    near = (Constraint("rack", ConstraintOp.IN, values=("r0", "r1", *racks)),)
    return rng.choice(
        (
            msgspec.structs.replace(spec, env=env),
            msgspec.structs.replace(spec, command=command),
            msgspec.structs.replace(spec, constraints=near * 2),
            msgspec.structs.replace(spec, env=env, command=command, constraints=near * 2),
        )
    )


def _spec(rng: random.Random, number: int, names: list[str]) -> JobSpec:
    kind = rng.random()
    name = f"/job-{number}"
    if names and kind < 0.2:
        name = f"{rng.choice(names)}/part-{number}"
    elif names and kind < 0.3:
        name = rng.choice(names)
    if kind > 0.8:
        return JobSpec(
            name=name,
            command=("work",),
            replicas=2,
            resources=ResourceRequest(cpu_millis=rng.choice((1000, 3000))),
            coscheduling=rng.choice(
                (
                    Coscheduling("rack"),
                    Coscheduling("rack", slices=2),
                    Coscheduling("rack", "leader"),
                )
            ),
            band=rng.choice(("production", "interactive", "batch")),
            max_retries_failure=rng.choice((0, 1, 3)),
            timeout_s=rng.choice((None, 20.0)),
            user="ann",
        )
    return JobSpec(
        name=name,
        command=("work",),
        replicas=rng.choice((1, 1, 2, 3, 6)),
        resources=ResourceRequest(cpu_millis=rng.choice((500, 1000, 2000, 4000))),
        band=rng.choice(("production", "interactive", "batch")),
        max_retries_failure=rng.choice((0, 0, 1, 3)),
        max_retries_preemption=rng.choice((0, 2, 100)),
        max_task_failures=rng.choice((0, 0, 1)),
        scheduling_timeout_s=rng.choice((None, None, 20.0)),
        timeout_s=rng.choice((None, None, 8.0)),
        bundle=rng.choice((None, None, "a" * 64)),
        max_parallel=rng.choice((None, None, 1, 2)),
        on_exit=rng.choice(((), (), (ExitRule((1,), "requeue"),), (ExitRule(("1-255",), "fail"),))),
        max_requeues=rng.choice((0, 2, 100)),
        backoff_s=rng.choice((None, None, 0.5, 4.0)),
        user="ann",
    )
