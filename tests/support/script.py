"""Stories as text: ``script.play`` executes one line after another and compares the results.

    worker w0 cpu=2 rack=r1              submit /train replicas=2 retries=1 gang=rack cpu=1 user=ann
     -> created schedule                             place /train/0 w0  -> placed          place
     /gang w0 w1
    chain /map/1 /map/2 behind /map/0    /map/1 handed_back
    /train/0 building|prepared|running   /train/0 exit 3    /train/0 exit 0    /a/0
    missing|infra|crashed|timeout /train/0 pulling detail=installing
    /train/0#1 running                   w1 says /train/0 running              /b/0 preempt for /p/0
    cancel /train user=ann               rerun /train --failed                 admin drain w0
    heartbeat w0 without /train/0             heartbeat w0 unhealthy                     lose w0
    restart w0 without /a/0 stop w0    stop w0 gone wait 5      silence 40    takeover 61
    orders w0 deaf|listens|held|absent       orders w0 arrive|fail
    quota ann max_pending_tasks=3            policy prepare_tries=0

A task of an earlier run of its name is ``j1/0``.

What follows ``->`` is the outcome: a task's state after a line that names a task, an answer's
status, a placement's fate. Lines that only look: ``/a/0 -> RUNNING failures=1``, ``job /a -> FAILED
cause=failed``, ``session /a -> RUNNING tries=PrepareSessions:1``, ``attempt /a/0#1 -> state=failed
charged_to=failure open=no``, ``capacity w0 -> cpu=1``, ``worker? w0 -> lost``, ``events /a/0 ->
pending assigned``, ``told w0 -> run:/a/0#0``, ``queue -> /b/0 /a/0``, ``history /a -> ...``.
``key=~word`` asks whether the word is in the value. Times in seconds, cpu in whole cpus.

After every line all invariants hold; after every story replaying the commits makes an equal ledger.
A line that fails shows the whole story with what came of each line. Out of scope: the machine's
    world, which is `world`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import pytest

from iris.client.options.jobs import read_rule
from iris.client.options.levels import read_levels
from iris_core import codec
from iris_core.limits import ATTEMPTS
from iris_core.messages.gateway_state import Answer, Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import (
    Eviction,
    Extension,
    JobReason,
    Nomination,
    Placement,
    Plan,
)
from iris_core.messages.state_worker import Ended, GivenNotice, Stage
from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.spec.calls import Calls
from iris_core.spec.jobs import (
    Constraint,
    Coscheduling,
    Dependency,
    Environment,
    JobSpec,
    Level,
    NoticePolicy,
    StopPolicy,
)
from iris_core.spec.resources import Amount, Device, ResourceRequest
from iris_core.states import Cause, ConstraintOp, KernelStatus, NoticeReason
from iris_state.policy import Policy
from tests.support import first_fit
from tests.support.world import ABSENT, ADMIN, DEAF, HELD, LISTENS, START_MS, Host, World, picture

GIB = 1 << 30
_TASK = re.compile(r"(?P<task>(?:/[^#\s]*|j\d+)/\d+)(?:#(?P<attempt>\d+))?\Z")
_STAGES = {
    "preparing": KernelStatus.PREPARING,
    "building": KernelStatus.PREPARING,
    "pulling": KernelStatus.PULLING,
    "prepared": KernelStatus.PREPARED,
    "creating": KernelStatus.CREATING,
    "running": KernelStatus.RUNNING,
    "run": KernelStatus.RUNNING,
    "pending": KernelStatus.PENDING,
}
_ENDS = {
    "missing": Ended(Cause.MISSING, error="no trace of it"),
    "infra": Ended(Cause.INFRASTRUCTURE, error="no disk"),
    "sigbus": Ended(Cause.EXITED, signal=7, error="signal SIGBUS"),
    "stopped": Ended(Cause.CANCELLED, signal=15),
    "timeout": Ended(Cause.TIMEOUT, signal=9),
    "handed_back": Ended(
        Cause.HANDED_BACK, error="not started: the call before it on this worker takes long"
    ),
    "crashed": Ended(
        Cause.WORKER_CRASHED, error="exit code unknown: the worker process ended while it ran"
    ),
}


class Listed(str):
    """An outcome that is a list: nothing more and nothing less may be in it, ``nothing`` when it is
    empty.
    """

    __slots__ = ()

    @classmethod
    def of(cls, items: Iterable[str], separator: str = " ") -> Listed:
        return cls(separator.join(items) or "nothing")


class StoryError(AssertionError):
    """A line of a story did not come out as written; the text shows the whole story."""


@dataclass
class Line:
    """One line: its words, its ``key=value`` words, and what is expected of it."""

    text: str
    words: list[str]
    options: dict[str, str]
    expected: str | None

    @classmethod
    def read(cls, text: str) -> Line:
        body, arrow, expected = text.partition("->")
        words = body.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        return cls(
            text, [w for w in words if "=" not in w], options, expected.strip() if arrow else None
        )


class Script:
    """Plays stories in one world; ``world`` is there for what no verb says."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.world = World(policy)
        self._played: list[str] = []
        self._marks: dict[str, int] = {}
        self._broken = False

    def play(self, story: str) -> None:
        """Do every line. Raises StoryError with the story so far when one comes out differently."""
        for text in (line.split("  # ")[0].strip() for line in story.splitlines()):
            if not text or text.startswith("#"):
                continue
            line = Line.read(text)
            try:
                outcome = self._do(line)
            except Exception as error:
                raise StoryError(self._told(text, f"{type(error).__name__}: {error}")) from error
            self._played.append(f"    {text:60} {outcome}")
            if line.expected is not None and not _agrees(line.expected, outcome):
                raise StoryError(self._told(text, outcome))

    def _told(self, text: str, outcome: str) -> str:
        self._broken = True
        played = "\n".join(
            self._played[:-1]
            if self._played and self._played[-1].strip().startswith(text)
            else self._played
        )
        return f"\n{played}\n>>> {text}\n    came out as: {outcome}"

    def close(self) -> None:
        """Replay everything that was committed and compare. Raises AssertionError naming what
        differs.
        """
        if self._broken:
            return
        mine, theirs = (
            picture(m, self.world.now_ms) for m in (self.world.machine, self.world.replayed())
        )
        for name, value in mine.items():
            assert theirs[name] == value, (
                f"replay makes other {name}:\n{theirs[name]}\nthan there are:\n{value}"
            )

    # ── one line ──────────────────────────────────────────────────────────────────────────────────

    def _do(self, line: Line) -> str:
        first = line.words[0]
        if _TASK.match(first):
            return self._of_task(line)
        if len(line.words) > 2 and line.words[1] == "says":
            return self._says(first, line.words[2], line.words[3:])
        return _VERBS[first](self, line)

    def _of_task(self, line: Line) -> str:
        if len(line.words) > 1 and line.words[1] == "preempt":
            return self._preempt(line)
        if len(line.words) > 1:
            ref, worker = self._attempt(line.words[0])
            detail = line.options.get("detail", "")
            self._report(worker, ref, line.words[1:], detail, waits="waits" in line.words[2:])
        return self._task(line.words[0])

    def _says(self, worker: str, task: str, words: list[str]) -> str:
        ref, _ = self._attempt(task)
        self._report(worker, ref, words)
        return self._task(task)

    def _report(
        self,
        worker: str,
        ref: AttemptRef,
        words: list[str],
        detail: str = "",
        *,
        waits: bool = False,
    ) -> None:
        what, now = words[0], self.world.now_ms
        if what == "exit":
            code = int(words[1])
            ended = Ended(
                Cause.EXITED, exit_code=code, error="" if not code else f"exit code {code}"
            )
            stage = Stage(ref, KernelStatus.TERMINATED, now, ended)
        elif what == "left":  # after it was told to stop
            stage = Stage(
                ref, KernelStatus.TERMINATED, now, Ended(Cause.CANCELLED, exit_code=int(words[1]))
            )
        elif what == "noticed":
            stage = Stage(
                ref, KernelStatus.RUNNING, now, notices=(GivenNotice(NoticeReason(words[1]), now),)
            )
        elif what in _ENDS:
            stage = Stage(ref, KernelStatus.TERMINATED, now, _ENDS[what])
        else:
            stage = Stage(ref, _STAGES[what], now, detail=detail, waits=waits)
        self.world.say(worker, stage)

    def _attempt(self, text: str) -> tuple[AttemptRef, str]:
        """The attempt a word names (the last one unless it says which), and the worker it is on."""
        match = _TASK.match(text)
        assert match, f"{text} names no task"
        name, _, index = match["task"].rpartition("/")
        job = self.world.query("job", job=name)
        attempts = self.world.query("task", task=match["task"])["attempts"]
        number = int(match["attempt"]) if match["attempt"] else max(0, len(attempts) - 1)
        worker = attempts[number]["worker"] if number < len(attempts) else ""
        return AttemptRef(int(job["id"][1:]), int(index), number), worker

    # ── people ────────────────────────────────────────────────────────────────────────────────────

    def _submit(self, line: Line) -> str:
        options = dict(line.options)
        caller = _caller(options)
        extra = {
            "idempotency_key": options.pop("key", ""),
            "if_exists": options.pop("if_exists", "error"),
        }
        extra["parent"] = options.pop("parent", "")
        request = options.pop("request", "")
        return _status(
            self.world.submit(spec(line.words[1], options), caller, request=request, **extra)
        )

    def _cancel(self, line: Line) -> str:
        options = line.options
        reason, request = options.get("reason", ""), options.get("request", "")
        now = "now" in line.words[2:]
        return _status(self.world.cancel(line.words[1], _caller(options), reason, request, now=now))

    def _rerun(self, line: Line) -> str:
        failed = "--failed" in line.words
        env = dict([one.split("=")]) if (one := line.options.get("env")) else {}
        after = tuple(_dependencies(line.options.get("after", ""), each=False))
        caller, tasks = _caller(line.options), line.options.get("tasks", "")
        memory = {"memory_bytes": int(line.options["memory"])} if "memory" in line.options else {}
        what = {
            "failed_only": failed,
            "tasks": tasks,
            "env": env,
            "after": after,
            "resources": memory,
        }
        return _status(self.world.rerun(line.words[1], caller, **what))

    def _requeue(self, line: Line) -> str:
        return _status(
            self.world.requeue(line.words[1], _caller(line.options), line.options.get("reason", ""))
        )

    def _grow(self, line: Line) -> str:
        """``grow /m at=3 calls=2``, ``close /m``."""
        options, fields = dict(line.options), {}
        if line.words[0] == "grow":
            fields = {"offset": int(options["at"]), "count": int(options["calls"])}
        if "segment" in options:
            fields["segments"] = ("f" * 64,)
        return _status(
            self.world.grow(
                line.words[1],
                _caller(options),
                request=options.get("request", ""),
                close=line.words[0] == "close",
                **fields,
            )
        )

    def _amend(self, line: Line) -> str:
        """``hold /a reason=x --stop``, ``release /a``, ``release /a --drop-after version=1``."""
        hold, drop, stop = (
            line.words[0] == "hold",
            "--drop-after" in line.words,
            "--stop" in line.words,
        )
        reason, version = line.options.get("reason", ""), int(line.options.get("version", "0"))
        fields = {
            "hold": hold,
            "reason": reason,
            "drop_after": drop,
            "version": version,
            "stop": stop,
        }
        return _status(self.world.amend(line.words[1], _caller(line.options), **fields))

    def _hold_queue(self, line: Line) -> str:
        """``hold-queue band=batch reason=x by=ann``, ``release-queue h1 by=ann``."""
        options = dict(line.options)
        caller = Caller(options.pop("by"), "user") if "by" in options else ADMIN
        hold = line.words[1] if line.words[0] == "release-queue" else ""
        return _status(self.world.hold_queue(caller, hold=hold, **options))

    def _update(self, line: Line) -> str:
        """``update /a band=batch timeout_s=60 labels={"team":"x"}``: fields of the specification as
        JSON.
        """
        options = dict(line.options)
        caller, version = _caller(options), int(options.pop("version", "0"))
        patch = {name: _json(text) for name, text in options.items()}
        return _status(
            self.world.amend(line.words[1], caller, version=version, patch=codec.to_json(patch))
        )

    def _admin(self, line: Line) -> str:
        return _status(self.world.admin(line.words[1], line.words[2], _caller(line.options)))

    def _quota(self, line: Line) -> str:
        limits = {name: int(value) for name, value in line.options.items()}
        return _status(self.world.admin("set_quota", line.words[1], **limits))

    # ── hosts ─────────────────────────────────────────────────────────────────────────────────────

    def _worker(self, line: Line) -> str:
        options = dict(line.options)
        total = Amount(
            round(float(options.pop("cpu", "1")) * 1000),
            int(options.pop("memory", "0")) * GIB,
            int(options.pop("disk", "0")) * GIB,
            int(options.pop("chips", "0")),
        )
        limit = int(options.pop("attempts", ATTEMPTS))
        attributes = {key: _value(text) for key, text in options.items()}
        self.world.register(Host(line.words[1], total, attributes, limit))
        return self._host(line.words[1])

    def _restart(self, line: Line) -> str:
        self.world.restart(
            line.words[1], without=[self._attempt(text)[0] for text in line.words[3:]]
        )
        return self._host(line.words[1])

    def _beat(self, line: Line) -> str:
        without = (
            [self._attempt(text)[0] for text in line.words[3:]] if "without" in line.words else []
        )
        self.world.heartbeat(line.words[1], healthy="unhealthy" not in line.words, without=without)
        return self._host(line.words[1])

    def _lose(self, line: Line) -> str:
        self.world.admin("mark_lost", line.words[1])
        return self._host(line.words[1])

    def _leave(self, line: Line) -> str:
        """``stop w0``: it says that it is stopping, and refuses orders. ``stop w0 gone``: nothing
        of it is left.
        """
        self.world.leave(line.words[1], line.words[2] if len(line.words) > 2 else "stopping")
        return self._host(line.words[1])

    def _host(self, name: str) -> str:
        return str(self.world.query("worker", id=name)["state"])

    def _orders(self, line: Line) -> str:
        name, manner = line.words[1:3]
        if manner in (LISTENS, DEAF, HELD, ABSENT):
            self.world.hosts[name].manner = manner
        else:
            self.world.answer_held(
                name, "" if manner == "arrive" else f"worker {name} does not listen"
            )
        return manner

    def _wait(self, line: Line) -> str:
        self.world.wait(float(line.words[1]), heartbeat=line.words[0] == "wait")
        return f"t={self.world.now_ms / 1000:g}"

    def _take_over(self, line: Line) -> str:
        self.world.take_over(float(line.words[1]))
        return "leads"

    def _at(self, line: Line) -> str:
        """Jump to a time, seconds after the start; nobody says anything meanwhile."""
        self.world.now_ms = START_MS + round(float(line.words[1]) * 1000)
        return f"t={line.words[1]}"

    def _policy(self, line: Line) -> str:
        changes = {name: _value(text) for name, text in line.options.items()}
        self.world.policy = msgspec.structs.replace(self.world.policy, **changes)
        self.world.machine.policy = self.world.machine.round.policy = self.world.policy
        self.world.machine.ledger.grace_limits = self.world.policy.grace_limits
        return "ok"

    # ── the scheduler ─────────────────────────────────────────────────────────────────────────────

    def _schedule(self, line: Line) -> str:
        taken = self.world.plan(first_fit.plan(self.world.snapshot()))
        return f"placed {taken.placed}" + (f" refused {taken.refused}" if taken.refused else "")

    def _place(self, line: Line) -> str:
        """``place /a/0 w0`` one task; ``place /a w0 w1`` every task of a job, in order."""
        what, workers = line.words[1], tuple(line.words[2:])
        version = self.world.machine.sequence - int(line.options.get("behind", "0"))
        if match := _TASK.match(what):
            name, _, index = match["task"].rpartition("/")
            indexes = (int(index),)
        else:
            name, indexes = what, tuple(range(len(workers)))
        job = self._number(name)
        placement = Placement(job, indexes, tuple(range(len(workers))))
        taken = self.world.plan(Plan("story", version, workers, (placement,)))
        return ("placed" if taken.placed else "") + " ".join(
            sorted({cause for _, _, cause in taken.refused})
        )

    def _chain(self, line: Line) -> str:
        """``chain /a/1 /a/2 behind /a/0``: tasks that wait behind an open attempt, on its
        worker.
        """
        at = line.words.index("behind")
        ref, worker = self._attempt(line.words[at + 1])
        indexes = tuple(int(text.rpartition("/")[2]) for text in line.words[1:at])
        extension = Extension(ref, line.options.get("on", worker), indexes)
        taken = self.world.plan(Plan("story", self.world.machine.sequence, extensions=(extension,)))
        return ("placed" if taken.placed else "") + " ".join(
            sorted({cause for _, _, cause in taken.refused})
        )

    def _preempt(self, line: Line) -> str:
        """``/b/0 preempt for /p/0``, ``/b/0 preempt /b/1 for /p/0 /p/1``: victims, and who gets
        their places.
        """
        at = line.words.index("for")
        victims = [self._attempt(text) for text in (line.words[0], *line.words[2:at])]
        waiting = [self._attempt(text)[0] for text in line.words[at + 1 :]]
        nominations = tuple(
            Nomination(ref.job, ref.index, worker)
            for ref, (_, worker) in zip(waiting, victims, strict=False)
        )
        eviction = Eviction(tuple(ref for ref, _ in victims), nominations)
        self.world.plan(Plan("story", self.world.machine.sequence, evictions=(eviction,)))
        return self._task(line.words[0])

    def _explain(self, line: Line) -> str:
        """``explain /a not_enough_chips looks=3``: the scheduler says why a job waits."""
        code = ReasonCode(line.words[2])
        told = JobReason(
            self._number(line.words[1]), Reason(code, line.options.get("say", code.value))
        )
        looks = {
            name: int(value)
            for name, value in line.options.items()
            if name in ("looks", "since_ms")
        }
        told = msgspec.structs.replace(told, **looks)
        self.world.plan(Plan("story", self.world.machine.sequence, reasons=(told,)))
        return str(self.world.query("why", job=line.words[1])["pending_reason"]["code"])

    def _number(self, name: str) -> int:
        job = self.world.query("job", job=name)
        assert job, f"there is no job {name}"
        return int(job["id"][1:])

    # ── looking ───────────────────────────────────────────────────────────────────────────────────

    def _task(self, text: str) -> str:
        match = _TASK.match(text)
        assert match, f"{text} names no task"
        task = self.world.query("task", task=match["task"])
        if task is None:
            return "unknown"
        return (
            f"{task['state'].upper()} failures={task['failure_count']} preemptions={task['preemption_count']} "
            f"requeues={task['requeue_count']} "
            f"worker={task['worker'] or '-'} attempts={len(task['attempts'])} "
            f"no_retry={_word(task['no_retry'])} note={(task['note'] or '-').replace(' ', '_')} "
            f"error={task['error'] or '-'}"
        )

    def _job(self, line: Line) -> str:
        job = self.world.query("job", job=line.words[1])
        if job is None:
            return "unknown"
        counts = ",".join(f"{state}:{n}" for state, n in sorted(job["task_counts"].items()))
        return (
            f"{job['state'].upper()} id={job['id']} tasks={counts} cause={job['cause'] or '-'} "
            f"parent={job['parent'] or '-'} root={_seconds(job['root_submitted_at'])} error={job['error'] or '-'}"
        )

    def _session(self, line: Line) -> str:
        name = line.words[1]
        if _TASK.match(name):
            head, _, index = name.rpartition("/")
            session = self.world.query("session", id=f"j{self._number(head)}-{index}")
        else:
            session = self.world.query("session", id=f"j{self._number(name)}")
        tries = ",".join(f"{handler}:{n}" for handler, n in session["tries"].items())
        kernels = ",".join(kernel["status"] for kernel in session["kernels"])
        return f"{session['status'].upper()} tries={tries or '-'} kernels={kernels} since={_seconds(session['since'])}"

    def _attempt_view(self, line: Line) -> str:
        ref, _ = self._attempt(line.words[1])
        view = self.world.query("task", task=line.words[1].partition("#")[0])["attempts"][
            ref.attempt
        ]
        shown = {name: _word(value) for name, value in view.items()}
        return " ".join(f"{name}={value}" for name, value in shown.items())

    def _note(self, line: Line) -> str:
        return str(self.world.query("task", task=line.words[1])["note"])

    def _capacity(self, line: Line) -> str:
        view = self.world.query("worker", id=line.words[1])
        free = {name: view["total"][name] - view["committed"][name] for name in view["total"]}
        return (
            f"cpu={free['cpu_millis'] / 1000:g} chips={free['chips']} memory={free['memory_bytes'] / GIB:g} "
            f"building={view['building']}"
        )

    def _look_worker(self, line: Line) -> str:
        view = self.world.query("worker", id=line.words[1])
        return (
            f"{view['state']} tasks={','.join(view['tasks']) or '-'} detail={view['detail'] or '-'}"
        )

    def _events(self, line: Line) -> str:
        """What was told of a task, a job or a session since this was last asked."""
        name = line.words[1]
        kind = "task" if _TASK.match(name) else "job"
        if name.startswith("session:"):
            kind, name = "session", f"j{self._number(name.removeprefix('session:'))}"
        start, self._marks[line.words[1]] = (
            self._marks.get(line.words[1], 0),
            len(self.world.events),
        )
        found = (
            body for subject, body in self.world.events[start:] if subject.startswith(f"{kind}.")
        )
        return Listed.of(body["state"] for body in found if body[kind] == name)

    def _said(self, line: Line) -> str:
        """What a host was ordered since this was last asked."""
        name = line.words[1]
        orders = self.world.hosts[name].orders
        start, self._marks[f"orders {name}"] = self._marks.get(f"orders {name}", 0), len(orders)
        words = [word for order in orders[start:] for word in self._ordered(order)]
        return Listed.of(dict.fromkeys(words))

    def _ordered(self, order: Any) -> Iterator[str]:
        for part in ("run", "prepare", "start"):
            yield from (f"{part}:{self._name(ref)}" for ref in getattr(order, part))
        yield from (f"stop:{self._name(stop.ref)}" for stop in order.stop)
        for number, timeout_ms in order.timeouts.items():
            yield f"timeout:{self.world.ledger.jobs[number].name}={timeout_ms / 1000:g}"
        yield from (f"drained:{self._name(ref)}" for ref in order.drained)
        if order.register:
            yield "register"

    def _name(self, ref: AttemptRef) -> str:
        job = self.world.query("job", job=f"j{ref.job}")
        return f"{job['name'] if job else f'j{ref.job}'}/{ref.index}#{ref.attempt}"

    def _queue(self, line: Line) -> str:
        jobs = self.world.ledger.jobs
        return Listed.of(
            f"{jobs[number].name}/{index}" for number, index in self.world.ledger.queue
        )

    def _history(self, line: Line) -> str:
        """``history /a``: one piece per row, ``handler:from>to:result`` with ``x n`` when it
        happened n times.
        """
        rows = self.world.query("history", job=line.words[1], limit=500)["items"]
        said = (
            f"{row['handler']} {row['from']}>{row['to']} {row['result']}"
            + (f" x{row['attempts']}" if row["attempts"] > 1 else "")
            + (f" ({row['reason']})" if row["reason"] else "")
            for row in rows
        )
        return Listed.of(said, " | ")

    def _why(self, line: Line) -> str:
        view = self.world.query("why", job=line.words[1])
        reason = view["pending_reason"]
        return str(reason["code"]) if reason else "-"

    def _nominated(self, line: Line) -> str:
        """The places kept, and for whom."""
        names = {row.job: row.name for row in self.world.snapshot().jobs}
        kept = (
            f"{p.worker}:{names.get(p.job, p.job)}/{p.index}"
            for p in self.world.snapshot().nominations
        )
        return Listed.of(sorted(kept))

    def _avoided(self, line: Line) -> str:
        kept = (
            f"{a.worker}:{a.index}:{(a.until_ms - self.world.now_ms) / 1000:g}"
            for a in self.world.snapshot().avoid
        )
        return Listed.of(kept)


_VERBS: dict[str, Callable[[Script, Line], str]] = {
    "submit": Script._submit,
    "cancel": Script._cancel,
    "rerun": Script._rerun,
    "requeue": Script._requeue,
    "grow": Script._grow,
    "close": Script._grow,
    "hold": Script._amend,
    "release": Script._amend,
    "update": Script._update,
    "hold-queue": Script._hold_queue,
    "release-queue": Script._hold_queue,
    "admin": Script._admin,
    "quota": Script._quota,
    "worker": Script._worker,
    "restart": Script._restart,
    "heartbeat": Script._beat,
    "lose": Script._lose,
    "orders": Script._orders,
    "stop": Script._leave,
    "wait": Script._wait,
    "silence": Script._wait,
    "takeover": Script._take_over,
    "at": Script._at,
    "policy": Script._policy,
    "schedule": Script._schedule,
    "place": Script._place,
    "chain": Script._chain,
    "explain": Script._explain,
    "job": Script._job,
    "session": Script._session,
    "attempt": Script._attempt_view,
    "note": Script._note,
    "capacity": Script._capacity,
    "worker?": Script._look_worker,
    "events": Script._events,
    "told": Script._said,
    "queue": Script._queue,
    "history": Script._history,
    "why": Script._why,
    "promised": Script._nominated,
    "avoided": Script._avoided,
}


_A_MAP = Calls(runner="0" * 64, function="1" * 64, segments=("2" * 64,), firsts=(0,), count=1)


def _levels(gang: str) -> str | tuple[Level, ...]:
    """``rack``, or levels such as ``rack:preferred,block``."""
    return read_levels(gang.split(",")) or ()


def spec(name: str, options: dict[str, str]) -> JobSpec:
    """A job as a story says it; unknown words are a mistake of the story."""
    words = dict(options)
    device = _device(words)
    cpu = round(float(words.pop("cpu", "1")) * 1000)
    gang, success = words.pop("gang", ""), words.pop("success", "all")
    slices, within = int(words.pop("slices", "1")), words.pop("within", "")
    made = JobSpec(
        name=name,
        command=("true",),
        replicas=int(words.pop("replicas", "1")),
        resources=ResourceRequest(cpu, int(words.pop("memory", "0")) * GIB, device=device),
        constraints=tuple(_constraints(words.pop("where", ""))),
        environment=Environment(image=words.pop("image")) if "image" in words else None,
        coscheduling=Coscheduling(_levels(gang), success, slices, within) if gang else None,
        band=words.pop("band", "interactive"),  # type: ignore[arg-type]
        max_retries_failure=int(words.pop("retries", "0")),
        max_retries_preemption=int(words.pop("preemptions", "100")),
        max_task_failures=int(words.pop("tolerate", "0")),
        scheduling_timeout_s=_maybe(words.pop("scheduling_timeout", None)),
        timeout_s=_maybe(words.pop("timeout", None)),
        user=words.pop("for_user", ""),
        array=words.pop("array", ""),
        on_exit=tuple(read_rule(rule) for rule in words.pop("on_exit").split(";"))
        if "on_exit" in words
        else (),
        stop=StopPolicy(grace_s=float(words.pop("grace"))) if "grace" in words else None,
        notice=_notice(words.pop("notice", "")),
        on_timeout=words.pop("on_timeout", "kill"),  # type: ignore[arg-type]
        protect_s=_maybe(words.pop("protect", None)),
        backoff_s=_maybe(words.pop("backoff", None)),
        max_requeues=int(words.pop("requeues", "100")),
        max_parallel=int(words.pop("parallel")) if "parallel" in words else None,
        after=tuple(_dependencies(words.pop("after", ""), each=words.pop("each", "no") == "yes")),
        not_before=words.pop("not_before", ""),
        singleton=words.pop("singleton", ""),
        hold=words.pop("hold", "no") == "yes",
        indexes=words.pop("indexes", ""),
        calls=_calls(words),
    )
    assert not words, f"the story says {words} of {name}"
    return made


def _calls(words: dict[str, str]) -> Calls | None:
    """``map=yes``, ``map=yes open=600``."""
    idle_s = _maybe(words.pop("open", None))
    return msgspec.structs.replace(_A_MAP, idle_s=idle_s) if words.pop("map", "") else None


def _dependencies(text: str, *, each: bool) -> Iterator[Dependency]:
    """``after=/prep:ok,j3:any``."""
    for part in text.split(",") if text else ():
        job, _, when = part.partition(":")
        yield Dependency(job, when or "ok", each)  # type: ignore[arg-type]


def _notice(text: str) -> NoticePolicy | None:
    """``notice=USR1@10``."""
    signal, _, before = text.partition("@")
    return NoticePolicy(signal=f"SIG{signal}", before_s=float(before)) if text else None


def _device(words: dict[str, str]) -> Device | None:
    if "tpu" in words:
        return Device("tpu", words.pop("tpu"), int(words.pop("chips", "4")))
    if "gpu" in words:
        variants = tuple(words.pop("gpu").split(","))
        return Device(
            "gpu", variants if len(variants) > 1 else variants[0], int(words.pop("chips", "1"))
        )
    return None


def _constraints(text: str) -> Iterator[Constraint]:
    """``where=zone:eu-1,disk:ssd``: every one of these attributes must be equal."""
    for part in text.split(",") if text else ():
        key, _, value = part.partition(":")
        yield Constraint(key, ConstraintOp.EQ, _value(value))


def _json(text: str) -> Any:
    """A JSON value, or a word."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _caller(options: dict[str, str]) -> Caller:
    user = options.pop("user", "")
    role = options.pop("role", "user" if user else "admin")
    return Caller(user, role) if user else ADMIN


def _maybe(text: str | None) -> float | None:
    return None if text is None else float(text)


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ">".join(str(part) for part in value)
    return "-" if value is None else str(value)


def _seconds(moment: str | None) -> str:
    """Seconds since the story began."""
    if moment is None:
        return "-"
    return f"{datetime.fromisoformat(moment).timestamp() - START_MS / 1000:g}"


def _status(answer: Answer) -> str:
    body = msgspec.json.decode(answer.body)
    words = (
        body.get("detail") or body.get("id") or body.get("user") if isinstance(body, dict) else ""
    )
    return f"{answer.status} {words or ''}"


def _agrees(expected: str, outcome: str) -> bool:
    """Every expected word is in the outcome: first words first, ``key=value`` exactly,
    ``key=~part`` within.

    Quoted or several plain words are compared as one text, so that nothing more may have been said.
    """
    plain = " ".join(word for word in expected.split() if not re.match(r"\w+=", word))
    request = dict(word.split("=", 1) for word in expected.split() if re.match(r"\w+=", word))
    said = _pairs(outcome)
    if plain and not _plainly(plain, outcome):
        return False
    return all(
        (value[1:].replace("_", " ") in said.get(key, "").replace("_", " "))
        if value.startswith("~")
        else said.get(key) == value
        for key, value in request.items()
    )


def _plainly(plain: str, outcome: str) -> bool:
    plain, _, within = plain.partition("~")
    if within.strip() not in outcome:
        return False
    if not (plain := plain.strip()):
        return True
    if isinstance(outcome, Listed):
        return outcome == plain
    bare = re.split(r"\s\w+=", outcome, maxsplit=1)[0].strip()
    return bare == plain or (" " not in plain and bare.split(" ")[0] == plain)


def _pairs(outcome: str) -> dict[str, str]:
    found = re.split(r"(?:^|\s)(\w+)=", outcome)[1:]
    return dict(zip(found[::2], (text.strip() for text in found[1::2]), strict=True))


@pytest.fixture
def script() -> Iterator[Script]:
    """A script in a fresh world; replay equality is asked when the test has passed."""
    playing = Script()
    yield playing
    playing.close()
