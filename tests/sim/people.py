"""Simulated people: they submit, cancel and run again what is theirs, and keep asking until they are answered.

They remember every promise they were given; the judge holds the cluster to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from dataclasses import dataclass, field

import msgspec

from iris_bus.contract import Message, Unavailable
from iris_core import codec, subjects
from iris_core.constraints import MAX_TEXT, MAX_VALUES
from iris_core.errors import Code
from iris_core.limits import SENTENCE
from iris_core.messages import BEHIND, AdminCommand, Answer, Caller, CancelJob, DeployCommand, Query, SubmitJob
from iris_core.resources import ResourceRequest
from iris_core.serving import DeploymentSpec, RouteTemplate, UpdatePolicy
from iris_core.spec import MAX_COMMAND_BYTES, MAX_ENV_BYTES, Constraint, Coscheduling, JobSpec, Probe
from iris_core.states import ConstraintOp
from iris_core.subjects import STATE_QUERY, STATE_READ
from tests.sim.network import Link

_AGAIN_S = 1.0
_LOOK_S = 0.7
_STRAIGHT_S = 0.25
_TRIES = 400
SETTLED_S = 180.0
_IN_ITS_WAY = frozenset({"crash_loop", "back_off", "update_failed", "paused", "waiting_for_capacity"})
_FORGOTTEN = re.compile(rb"has made job j(\d+), which has ended and is forgotten")


@dataclass
class Promises:
    """What people were told.

    Attributes:
        created: job number by request id. keys: the job numbers each idempotency key was answered with.
        names: the name of each promised job. missed: promised jobs that somebody was told do not exist.
        forgotten: jobs that were said to be forgotten, each with the position of that answer.
        unsettled: deployments that were neither ready nor said why not when nothing was done to the cluster any more.
    """

    created: dict[str, int] = field(default_factory=dict)
    keys: dict[str, set[int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    missed: list[int] = field(default_factory=list)
    forgotten: list[tuple[int, int]] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)
    asked: int = 0
    answered: int = 0

    def note(self, request: SubmitJob, answer: Answer) -> None:
        """An answer names the job that the request has made; who asks again late may hear that it is forgotten."""
        if answer.status in ("created", "replayed"):
            body = codec.from_json(answer.body, dict)
            number, name = int(body["id"][1:]), body["name"]
        elif found := _FORGOTTEN.search(answer.body):
            number, name = int(found[1]), request.spec.name
            self.forgotten.append((number, answer.position))
        else:
            return
        self.created[request.request_id] = number
        self.names[number] = name
        if request.idempotency_key:
            self.keys.setdefault(request.idempotency_key, set()).add(number)


class People:
    """Everybody who uses the gateway.

    Args:
        plan: when what is wanted, made beforehand, so that chance is drawn in one place.
        calm_s: after which nothing is done to the cluster any more.
    """

    def __init__(self, link: Link, promises: Promises, plan: list[tuple[float, object]], calm_s: float) -> None:
        self._bus = link.bus
        self._streams = link.streams
        self._promises = promises
        self._plan = plan
        self._calm_s = calm_s
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._inbox = ""
        self._looks = self._said = self._position = 0
        self._asking: set[asyncio.Task[None]] = set()

    def want(self, command: object) -> None:
        """Something that was not planned."""
        self._promises.asked += 1
        asking = asyncio.get_running_loop().create_task(self._ask(command))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    async def run(self) -> None:
        self._inbox = self._bus.new_inbox()
        await self._bus.subscribe(f"{self._inbox}.*", self._answered)
        loop = asyncio.get_running_loop()
        began = loop.time()
        looking = loop.create_task(self._look())
        asking = []
        drains = (
            command for _, command in self._plan if isinstance(command, AdminCommand) and command.action == "drain"
        )
        drained = next(drains, None)
        created = [
            command for _, command in self._plan if isinstance(command, DeployCommand) and command.action == "create"
        ]
        self._promises.asked += (drained is not None) + len(created)
        for at, command in self._plan:
            await asyncio.sleep(max(0.0, began + at - loop.time()))
            self._promises.asked += 1
            asking.append(loop.create_task(self._ask(command)))
        await asyncio.gather(*asking)
        if drained is not None:  # a late drain may have come after its end
            await self._ask(msgspec.structs.replace(drained, action="undrain", request_id="undrain-at-last"))
        await asyncio.sleep(max(0.0, began + self._calm_s - loop.time()))
        await asyncio.gather(*(self._settle(command.name) for command in created))
        for command in created:  # a late create may have come after every other word about it
            delete = msgspec.structs.replace(command, action="delete", spec=None, request_id=f"{command.name}-at-last")
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
            await asyncio.sleep(_AGAIN_S)
        self._promises.unsettled.append(f"{name}: {last.decode()}")

    async def _ask(self, command: object) -> str:
        """Until there is an answer; the same request every time. The answer's status, empty when there is none."""
        assert isinstance(command, SubmitJob | CancelJob | AdminCommand | DeployCommand)
        subject = {
            SubmitJob: subjects.CMD_SUBMIT,
            CancelJob: subjects.CMD_CANCEL,
            AdminCommand: subjects.CMD_ADMIN,
            DeployCommand: subjects.CMD_DEPLOY,
        }
        token = command.request_id
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        data = codec.pack(_to(command, f"{self._inbox}.{token}"))
        answer = await self._say(subjects.direct_subject(subject[type(command)]), data)
        if answer is not None:
            self._note(command, answer)
            return answer.status
        for number in range(_TRIES):
            try:
                await self._streams.publish(subject[type(command)], data, message_id=f"{token}.{number // 3}")
            except Unavailable:
                await asyncio.sleep(_AGAIN_S)
                continue
            done, _ = await asyncio.wait([future], timeout=_AGAIN_S)
            if done:
                self._note(command, future.result())
                return future.result().status
        return ""

    async def _say(self, subject: str, data: bytes) -> Answer | None:
        """As a gateway does it: to the leader first, if there is one that answers in time and does not leave it."""
        self._said += 1
        if self._said % 3 == 0:  # too many are under way
            return None
        try:
            return codec.unpack((await self._bus.request(subject, data, timeout=_STRAIGHT_S)).data, Answer)
        except (Unavailable, codec.Undecodable):
            return None

    async def _look(self) -> None:
        """Now and then look after a job that was promised: it must be there for whoever asks after that."""
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
        """As a gateway does it: a replica that follows is asked first, and the leader when that is not far enough."""
        with contextlib.suppress(Unavailable):
            answer = codec.unpack((await self._bus.request(STATE_READ, question, timeout=1.0)).data, Answer)
            if answer.status != BEHIND:
                return answer
        return codec.unpack((await self._bus.request(STATE_QUERY, question, timeout=1.0)).data, Answer)

    def _answered(self, message: Message) -> None:
        future = self._waiting.get(message.subject.rpartition(".")[2])
        if future is not None and not future.done():
            future.set_result(codec.unpack(message.data, Answer))

    def _note(self, command: object, answer: Answer) -> None:
        self._promises.answered += 1
        self._position = max(self._position, answer.position)
        if isinstance(command, SubmitJob):
            self._promises.note(command, answer)


def _is_settled(body: bytes) -> bool:
    """Whether a deployment is ready with every route that is wanted, or gone, or tells its owner what is in its way."""
    seen = codec.from_json(body, dict)
    told = {condition["code"] for condition in seen["conditions"]} & _IN_ITS_WAY
    if seen["status"] in ("destroying", "destroyed"):
        return True
    if seen["live"] == seen["replicas"] <= seen["available"]:
        update = seen["update"]
        return seen["status"] == "ready" or bool(told and update and update["old"])
    return bool(told)


def _to(command: SubmitJob | CancelJob | AdminCommand | DeployCommand, inbox: str) -> object:
    return msgspec.structs.replace(command, answer_to=inbox)


USER = Caller("ann", "user")
ADMIN = Caller("root", "admin")


def wishes(
    rng: random.Random, jobs: int, seconds: float, hosts: list[str], *, large: bool
) -> list[tuple[float, object]]:
    """A plan: plain, retrying, nested, coscheduled, timed and hopeless jobs; cancellations; hosts drained and back.

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
        names[spec.name] = at
        key = f"key-{number}" if rng.random() < 0.3 else ""
        plan.append((at, SubmitJob(spec, USER, f"r{number}", 1, idempotency_key=key, if_exists=if_exists)))
        if key and rng.random() < 0.5:
            plan.append((at + rng.random() * 5, SubmitJob(spec, USER, f"s{number}", 1, idempotency_key=key)))
        if rng.random() < 0.15:
            why = "z" * (SENTENCE if large else 0)
            plan.append((at + rng.random() * 10, CancelJob(spec.name, USER, f"c{number}", 1, why)))
    if rng.random() < 0.5:
        host = rng.choice(hosts)
        at = rng.random() * seconds / 2
        plan.append((at, AdminCommand("drain", host, ADMIN, "drain", 1)))
        plan.append((at + 15, AdminCommand("undrain", host, ADMIN, "undrain", 1)))
    if rng.random() < 0.2:
        plan.append((rng.random() * seconds, AdminCommand("mark_lost", rng.choice(hosts), ADMIN, "lost", 1)))
    return sorted(plan, key=lambda each: each[0])


PROBE = Probe(interval_s=2.0, failures=2, start_timeout_s=8.0, grace_s=4.0)


def rollouts(rng: random.Random, seconds: float) -> list[tuple[float, object]]:
    """A plan for deployments, in some worlds: created, updated to what serves and to what does not, scaled, held.

    The command says what a version is: ``good``, ``bad`` (it exits at once) or ``never`` (it never gets healthy).
    """
    plan: list[tuple[float, object]] = []
    for number in range(rng.choice((0, 0, 1, 1, 2))):
        name, at = f"serve-{number}", rng.random() * 8
        for turn in range(rng.randint(2, 7)):
            action = rng.choice(("update", "update", "scale", "rollback", "pause", "resume")) if turn else "create"
            spec = _deployment(rng, name) if action in ("create", "update") else None
            request = f"{name}-{turn}"
            plan.append((at, DeployCommand(action, name, USER, request, 1, spec, replicas=rng.randint(0, 4))))
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
    """The same job as large as one may be, in its environment, its command, its constraints, or all of it."""
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
            coscheduling=Coscheduling("rack", rng.choice(("all", "all", "leader"))),
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
        user="ann",
    )
