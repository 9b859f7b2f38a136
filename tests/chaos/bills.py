"""Checks what is billed and what the processes of the cluster have become: every second that was
held is in the sums once, whatever the clocks said; no process has ended but those that were ended;
none has grown out of bounds.

Each function returns sentences as `recount` does. Source:
docs/adr/0131-usage-is-summed-when-attempts-end.md, docs/adr/0154-times-of-records-pass-steadily.md.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from iris_core.views.usage import UsageView
from iris_state.records.apply.usage import began_to_hold
from iris_state.records.ledger import Ledger
from tests.support.cluster import Cluster

_ROUNDED_S = 0.1
"""By so much a sum may differ."""
_MOST_DESCRIPTORS = 512
_MOST_BYTES = 400 << 20
_ENDED = re.compile(r"([\w-]+) ended with (-?\d+)")
_RESTARTED = re.compile(r"([\w-]+ is restarted: .*)")
_BEGUN = ("recovered", "following", "leading", "started", "connected to NATS again")
"""What a process says that has reached NATS."""
_ORPHANED = "LauncherGone"


def billed(ledger: Ledger, sums: Iterable[UsageView], longest_s: float) -> tuple[str, list[str]]:
    """How much was billed, in words, and what is wrong about it.

    Args:
        ledger: of the journal, replayed. sums: what is told of each user. longest_s: so long the
            cluster is up.
    """
    held_s, attempts, wrong = 0.0, 0, list[str]()
    for job in ledger.jobs.values():
        cpu = ledger.requested[job.number].cpu_millis / 1000
        found = [one for task in job.tasks for one in task.attempts]
        for attempt in found:
            began_ms = began_to_hold(attempt)
            if not attempt.closed_ms or not began_ms:
                continue
            attempts += 1
            seconds = (attempt.closed_ms - began_ms) / 1000
            held_s += cpu * seconds
            if not 0 <= seconds <= longest_s:
                wrong.append(f"wrong: an attempt of {job.spec.name} was held for {seconds:.1f} s")
    told = [usage.total for usage in sums]
    sum_s, counted = sum(one.cpu_seconds for one in told), sum(one.attempts for one in told)
    if counted != attempts or abs(sum_s - held_s) > _ROUNDED_S:
        wrong.append(
            f"wrong: {sum_s:.2f} CPU seconds of {counted} attempts are billed, "
            f"{held_s:.2f} of {attempts} were held"
        )
    return f"{sum_s:.0f} CPU seconds of {counted} attempts", wrong


def ended(up: Path, logs: Path) -> tuple[Counter[str], list[str]]:
    """How often which process ended with what, and those that ended by themselves.

    Args:
        up: the log of `iris up`. logs: the directory of the logs of services.
    """
    text = up.read_text()
    found = Counter(f"{name} {code}" for name, code in _ENDED.findall(text))
    found.update(_RESTARTED.findall(text))
    wrong = [
        f"wrong: {log.stem} has ended by itself: {words}"
        for log in sorted(logs.glob("*.log"))
        for words in last_words(log.read_text(errors="replace").splitlines())
    ]
    return found, wrong


def last_words(lines: Iterable[str]) -> Iterator[str]:
    """What the processes of a service said when they ended by themselves, but those that may: a
    worker whose launcher was killed, and one that has not reached NATS since it started.
    """
    begun = False
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if said["level"] != "critical":
            begun = begun or said["message"].startswith(_BEGUN)
            continue
        words = f"{said['message']} {said.get('error', '')[-200:]}".strip()
        if begun and _ORPHANED not in words:
            yield words
        begun = False


def grown(cluster: Cluster) -> tuple[str, list[str]]:
    """The largest process in words, and those that hold too much."""
    most: Counter[str] = Counter()
    wrong: list[str] = []
    for name, held, limit in _held(cluster):
        unit = name.partition(" of ")[0]
        most[unit] = max(most[unit], held)
        if held > limit:
            wrong.append(f"wrong: {held} {name}, at most {limit} are expected")
    return ", ".join(f"at most {number} {unit}" for unit, number in sorted(most.items())), wrong


def _held(cluster: Cluster) -> Iterator[tuple[str, int, int]]:
    for service, pids in cluster.file["pids"].items():
        for pid in pids:
            process = psutil.Process(pid)
            yield f"descriptors of {service}", process.num_fds(), _MOST_DESCRIPTORS
            yield f"bytes of {service}", process.memory_info().rss, _MOST_BYTES
