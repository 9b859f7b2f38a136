"""Stories of an agent as text: each line is a stimulus, and after the arrow everything it answers.

    run 1-0-0            -> taken, launch 1-0-0
    started 1-0-0
    stop 1-0-0           -> taken, kill 1-0-0
    ended 1-0-0 0
    tell                 -> 1-0-0 PREPARING, 1-0-0 RUNNING, 1-0-0 TERMINATED cancelled 0

Attempts are job-index-attempt; job 2 has a bundle; `launch` is asked after every line. Each
requests one processor of two.
"""

from __future__ import annotations

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import (
    Chain,
    Ended,
    Order,
    ReportTaken,
    Stage,
    Stop,
    TaskTemplate,
)
from iris_core.spec.resources import Amount, ResourceRequest
from iris_core.states import Cause, KernelStatus
from iris_worker.agent.agent import Agent
from iris_worker.agent.instructions import Discard, Instruction, Kill, Prepare

SELF = "me"


def ref_of(text: str) -> AttemptRef:
    return AttemptRef(*map(int, text.split("-")))


def name_of(ref: AttemptRef) -> str:
    return f"{ref.job}-{ref.index}-{ref.attempt}"


def words(stage: Stage) -> str:
    ended = stage.ended
    if ended is None:
        return f"{name_of(stage.ref)} {stage.status}"
    code = "" if ended.exit_code is None else f" {ended.exit_code}"
    error = f": {ended.error}" if ended.signal is not None and ended.error else ""
    return f"{name_of(stage.ref)} {stage.status} {ended.cause}{code}{error}"


def instruction(one: Instruction) -> str:
    kinds = {Prepare: "prepare", Kill: "kill", Discard: "discard"}
    return f"{kinds[type(one)]} {name_of(one.ref)}"


class Story:
    """An agent and what was said to it."""

    def __init__(self) -> None:
        self.agent = Agent(SELF)
        self.agent.room.total = Amount(2000)
        self._in_flight: tuple[Stage, ...] = ()

    def play(self, text: str) -> None:
        for line in filter(None, map(str.strip, text.splitlines())):
            configured, _, expected = line.partition("->")
            verb, *rest = configured.split()
            answer = ", ".join([*getattr(self, f"on_{verb}")(*rest), *self._launches()])
            assert answer == expected.strip(), f"{configured.strip()} -> {answer}"

    def _launches(self) -> list[str]:
        found = [*map(instruction, self.agent.begin_waiting(0))]
        while (held := self.agent.next_launch()) is not None:
            found.append(f"launch {name_of(held.ref)}")
        return found

    def _order(
        self,
        incarnation: str = SELF,
        epoch: int = 1,
        chains: tuple[Chain, ...] = (),
        **parts: tuple[AttemptRef, ...],
    ) -> list[str]:
        jobs = {ref.job for refs in parts.values() for ref in refs}
        bundle = {2: "ab" * 32}
        templates = [
            TaskTemplate(j, f"/j{j}", ("true",), {}, 1, ResourceRequest(), "", bundle.get(j))
            for j in jobs
        ]
        stop = tuple(Stop(ref, 1000) for ref in parts.pop("stop", ()))
        taken, todo = self.agent.on_order(
            Order(incarnation, epoch, tuple(templates), stop=stop, chains=chains, **parts), 0
        )
        return ["taken" if taken.taken else "refused", *map(instruction, todo)]

    def on_run(self, *refs: str) -> list[str]:
        return self._order(run=tuple(map(ref_of, refs)))

    def on_prepare(self, *refs: str) -> list[str]:
        return self._order(prepare=tuple(map(ref_of, refs)))

    def on_start(self, *refs: str) -> list[str]:
        return self._order(start=tuple(map(ref_of, refs)))

    def on_stop(self, *refs: str) -> list[str]:
        return self._order(stop=tuple(map(ref_of, refs)))

    def on_stop_and_run(self, ref: str) -> list[str]:
        return self._order(stop=(ref_of(ref),), run=(ref_of(ref),))

    def on_chain(self, *words: str) -> list[str]:
        """``chain 1-0-0 : 1-1-0 1-2-0``: those after the colon wait for those before it."""
        at = words.index(":")
        ahead, members = tuple(map(ref_of, words[:at])), tuple(map(ref_of, words[at + 1 :]))
        return self._order(chains=(Chain(ahead, members),), run=members)

    def on_free(self, ref: str) -> list[str]:
        """Its process has ended, and its end cannot be reported yet."""
        self.agent.on_free(ref_of(ref), 0)
        return []

    def on_run_for(self, incarnation: str, ref: str) -> list[str]:
        return self._order(incarnation, run=(ref_of(ref),))

    def on_run_of_epoch(self, epoch: str, ref: str) -> list[str]:
        return self._order(epoch=int(epoch), run=(ref_of(ref),))

    def on_untold_what(self, ref: str) -> list[str]:
        taken, todo = self.agent.on_order(Order(SELF, 1, run=(ref_of(ref),)), 0)
        return ["taken" if taken.taken else "refused", *map(instruction, todo)]

    def on_prepared(self, ref: str) -> list[str]:
        return [*map(instruction, self.agent.on_prepared(ref_of(ref), 0))]

    def on_unprepared(self, ref: str) -> list[str]:
        return [
            *map(instruction, self.agent.on_unprepared(ref_of(ref), Ended(Cause.INFRASTRUCTURE), 0))
        ]

    def on_started(self, ref: str) -> list[str]:
        self.agent.on_started(ref_of(ref), 0)
        return []

    def on_ended(self, ref: str, code: str) -> list[str]:
        self.agent.on_ended(ref_of(ref), Ended(Cause.EXITED, int(code)), 0)
        return []

    def on_killed(self, ref: str, number: str) -> list[str]:
        """A signal ended it, and the shell says so in words."""
        ended = Ended(Cause.EXITED, signal=int(number), error=f"killed by signal {number}")
        self.agent.on_ended(ref_of(ref), ended, 0)
        return []

    def on_timeout(self, ref: str) -> list[str]:
        return [*map(instruction, self.agent.on_timeout(ref_of(ref)))]

    def on_adopt(self, ref: str) -> list[str]:
        self.agent.adopt(Stage(ref_of(ref), KernelStatus.RUNNING, 0))
        return []

    def on_doubt(self) -> list[str]:
        self.agent.unconfirmed = True
        return []

    def on_trust(self) -> list[str]:
        self.agent.unconfirmed = False
        return []

    def on_shutdown(self) -> list[str]:
        return [*map(instruction, self.agent.stop_all(1000, 0))]

    def on_tell(self) -> list[str]:
        """What is told now; on its way until `taken` or `lost`."""
        self._in_flight = self.agent.reports.take()
        return [*map(words, self._in_flight)]

    def on_report_all(self) -> list[str]:
        self._in_flight = self.agent.report_all()
        return [*map(words, self._in_flight)]

    def on_register(self) -> list[str]:
        """All attempts are told in a registration."""
        self._in_flight = self.agent.report_all()
        self.agent.room.doubt()
        return [*map(words, self._in_flight)]

    def on_registered(self, *dropped: str) -> list[str]:
        self.agent.room.believe(set(map(ref_of, dropped)), 0)
        return self.on_taken_but_drop(*dropped)

    def on_taken(self) -> list[str]:
        return [*map(instruction, self.agent.on_taken(self._in_flight, ReportTaken(), 0))]

    def on_taken_but_drop(self, *refs: str) -> list[str]:
        answer = ReportTaken(True, tuple(map(ref_of, refs)))
        return [*map(instruction, self.agent.on_taken(self._in_flight, answer, 0))]

    def on_lost(self) -> list[str]:
        self.agent.on_untaken(self._in_flight)
        return []

    def on_heartbeat(self) -> list[str]:
        return [*map(words, self.agent.attempts())]
