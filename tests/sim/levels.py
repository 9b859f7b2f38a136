"""Gangs by levels of the topology: which jobs become such, and that their members keep to what is
required.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator

import msgspec

from iris_core.messages.gateway_state import SubmitJob
from iris_core.spec.jobs import JobSpec, Level
from iris_state.records.ledger import Ledger

LEVELLED = 0.5
"""So many gangs are placed by levels."""
LEVELS = (
    (Level("rack"), Level("zone", "preferred")),
    (Level("zone", "preferred"), Level("rack")),
    (Level("zone", "preferred"),),
)
"""All of them fit where a gang of one rack does; zones lie across racks."""


def levelled(rng: random.Random, plan: list[tuple[float, object]]) -> list[tuple[float, object]]:
    """The same plan, with levels for some of its gangs; a repeated submission has the same."""
    chosen = {
        f"{number}": rng.choice(LEVELS) for number in range(len(plan)) if rng.random() < LEVELLED
    }
    made: list[tuple[float, object]] = []
    for at, command in plan:
        if isinstance(command, SubmitJob) and (levels := chosen.get(command.request_id[1:])):
            command = msgspec.structs.replace(command, spec=_placed_by(levels, command.spec))
        made.append((at, command))
    return made


def _placed_by(levels: tuple[Level, ...], spec: JobSpec) -> JobSpec:
    gang = spec.coscheduling
    if gang is None or (gang.slices > 1 and levels[0].mode == "preferred"):
        return spec
    return msgspec.structs.replace(
        spec, coscheduling=msgspec.structs.replace(gang, group_by=levels)
    )


def beyond_levels(ledger: Ledger) -> Iterator[str]:
    """Gangs with open attempts in several domains of a level that they require, or with two slices
    in one.
    """
    for job in ledger.jobs.values():
        gang = job.spec.coscheduling
        if gang is None or isinstance(gang.group_by, str) or job.is_terminal:
            continue
        hosts = {
            i: ledger.workers[task.current.worker]
            for i, task in job.numbered()
            if task.current is not None
        }
        for at, level in enumerate(gang.levels):
            domains = defaultdict(set)
            for index, host in hosts.items():
                part = index * gang.slices // job.spec.replicas if at == 0 else 0
                domains[part].add(host.attributes.get(level.key))
            values = [value for part in domains.values() for value in part]
            kept = len({*values} - {None}) == len(values) == len(domains)
            if level.mode == "required" and not kept:
                yield f"{job.name} requires one {level.key} and is on {dict(domains)}"
