"""The load: plain, failing, retrying, coscheduled and nested jobs, each with its expected result.

Every run of a task prints `PRINTED`. It writes one line into a ledger of its own when it begins and
one when it ends, with the time and its directory, so that a second run of one attempt is seen
whatever the cluster says. A submission is lost when it was acknowledged and is not there.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from iris import Client, Job
from iris.client.problems import ClientError

_RECORD = 'echo "$IRIS_TASK $IRIS_ATTEMPT {what} $(date +%s.%N) $PWD" >> {file}'
_PAUSE_S = 0.25
_LINES = 60
_PRINT = "seq -f 'line %g' {first} {last}"
PRINTED = [f"line {number}" for number in range(1, _LINES + 1)]
"""What a run prints from its begin to its end, on stdout."""
CHILD = "/child"
"""What every nested job's name ends with."""
_ENDS = {"failing": frozenset({"failed"})}
"""How each kind may end if not with success."""


@dataclass
class Nomination:
    """One acknowledged job: its id and how it must end, in the words of the API."""

    id: str
    name: str
    kind: str
    ends: frozenset[str]


@dataclass
class Load:
    """Submits until it is told to stop; every acknowledgement is a promise.

    Attributes:
        longest_s: of any task.
        gaps: for each time that submissions failed, how long until one was accepted again, in
            seconds.
    """

    client: Client
    runs: Path
    rng: random.Random
    longest_s: float = 6.0
    nominations: list[Nomination] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    refused: int = 0
    enough: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        while not self.enough.is_set():
            number += 1
            self._submit(number)
            self.enough.wait(_PAUSE_S)

    def _submit(self, number: int) -> None:
        """One job, asked for with one key until it is acknowledged."""
        kind = self.rng.choice(("plain", "plain", "plain", "failing", "retrying", "gang", "nested"))
        began = time.monotonic()
        failed = False
        while not self.enough.is_set():
            try:
                job = self._ask(kind, f"/{kind}-{number}")
            except ClientError:
                self.refused += 1
                failed = True
                time.sleep(0.02)
                continue
            if failed:
                self.gaps.append(time.monotonic() - began)
            self.nominations.append(
                Nomination(job.id, job.name, kind, _ENDS.get(kind, frozenset({"succeeded"})))
            )
            return

    def _ask(self, kind: str, name: str) -> Job:
        begins, ends = (_RECORD.format(what=what, file=self.runs) for what in ("begins", "ends"))
        half = _LINES // 2
        one, two = _PRINT.format(first=1, last=half), _PRINT.format(first=half + 1, last=_LINES)
        body = f"{begins}; {one}; sleep {min(self.longest_s, self.rng.choice((0.05, 0.3, 1, 3, 6)))}; {two}; {ends}"
        options = {"name": name, "cpu": 0.25, "max_retries_preemption": 100}
        if kind == "failing":
            body += "; exit 3"
        elif kind == "retrying":
            mark = f"{self.runs}.$(echo $IRIS_TASK | tr / _)"
            body = f"test -e {mark} || {{ touch {mark}; exit 7; }}; {body}"
            options |= {"max_retries_failure": 20, "replicas": 2}
        elif kind == "gang":
            options |= {"tpu": "v5litepod-16", "max_retries_failure": 20}
        elif kind == "nested":
            child = f"run -d --if-exists keep --name $IRIS_JOB{CHILD} --cpu 0.25 -- true"
            body = f"{begins}; {one}; {sys.executable} -m iris.cli {child} || exit 9; {two}; {ends}"
            options |= {"max_retries_failure": 20}
        else:
            options |= {"replicas": self.rng.choice((1, 2, 4))}
        return self.client.run(["sh", "-c", body], idempotency_key=name, **options)
