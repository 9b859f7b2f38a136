"""Checks whether any registered host could ever hold a job, for the submitter. The scheduler
decides placement.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

from iris_core.placement.constraints import eligible
from iris_core.placement.coscheduling import Grouping, groupings
from iris_core.placement.limits import not_in_force
from iris_core.spec.resources import AUTO, RESOURCES, Device
from iris_core.states import WorkerState
from iris_state.records.entities import Job
from iris_state.records.hosts import Worker
from iris_state.records.ledger import Ledger

_TASKS_READ = 1000
_HOSTS_NAMED = 3


def warnings(ledger: Ledger, record: Job) -> list[str]:
    """Why no registered host or group could run the job even if it were empty; empty when one
    could.

    LOST hosts do not count, and without any hosts there is no warning, because the cluster may be
    starting.
    """
    spec = record.spec
    gang = record.spec.coscheduling
    groups: Counter[tuple[object, object]] = Counter()
    required = (
        groupings(gang.levels, gang.within, spec.resources)[-1]
        if gang is not None
        else Grouping("")
    )
    domains: Counter[object] = Counter()
    hosts = 0
    matching = list[Worker]()
    large = 0
    for worker in ledger.workers.values():
        if worker.state is WorkerState.LOST:
            continue
        hosts += 1
        attributes = ledger.fleet.attributes(worker.id, worker.attributes)
        if not eligible(spec.placement, spec.resources, attributes):
            continue
        matching.append(worker)
        if not spec.resources.amount.fits(worker.total):
            continue
        if gang is None:
            return []
        large += 1
        domain = tuple(worker.attributes.get(key) for key in required.domain)
        group = worker.attributes.get(required.group) if required.group else ""
        groups[group, domain] += 1
        if (
            None not in (group, *domain)
            and groups[group, domain] == len(record.tasks) // gang.slices
        ):
            domains[domain] += 1
            if domains[domain] == gang.slices:
                return []
    return (
        [
            f"no registered worker can ever take {record.name}: {_why(ledger, record, hosts, matching, large=large)}; "
            "it waits until one can"
        ]
        if hosts
        else []
    )


def not_held(ledger: Ledger, record: Job) -> list[str]:
    """What the job asks for that the hosts of its tasks do not hold them to, or not by control
    groups; of the first hosts.
    """
    ask = record.spec.resources
    hosts = dict[str, Worker]()
    for _, task in islice(record.numbered(), _TASKS_READ):
        for attempt in task.attempts[-1:]:
            if (worker := ledger.workers.get(attempt.worker)) is not None:
                hosts[worker.id] = worker
    found: dict[str, list[str]] = {}
    for id_, worker in sorted(hosts.items()):
        for words in not_in_force(ask, worker.attributes):
            found.setdefault(words, []).append(id_)
    return [
        f"{words} on {', '.join(ids[:_HOSTS_NAMED])}"
        + (f" and {len(ids) - _HOSTS_NAMED} more" if len(ids) > _HOSTS_NAMED else "")
        for words, ids in found.items()
    ]


def _why(ledger: Ledger, record: Job, hosts: int, matching: list[Worker], large: int) -> str:
    if not matching:
        if lacking := _lacking_device(ledger, record.spec.resources.device, hosts):
            return lacking
        return f"none of {hosts} matches what it asks for (iris why {record.name} says which condition removes them)"
    if not large:
        ask = record.spec.resources.amount
        most = [
            max(column)
            for column in zip(*(worker.total.values for worker in matching), strict=True)
        ]
        short = [
            r.words
            for r, asked, there in zip(RESOURCES, ask.values, most, strict=True)
            if asked > there
        ]
        words = " and ".join(short) or "resources together"
        return f"none of {len(matching)} that match has as much {words} in all"
    gang = record.spec.coscheduling
    assert gang is not None
    size = len(record.tasks) // gang.slices
    required = groupings(gang.levels, gang.within, record.spec.resources)[-1]
    if absent := [
        key for key in required.keys if all(key not in worker.attributes for worker in matching)
    ]:
        return f"none of {len(matching)} that match has the attribute {' or '.join(absent)}"
    if gang.slices == 1:
        if not required.keys:
            return f"{large} workers match and are large enough, and it needs {size} at once"
        return f"no group by {' and '.join(required.keys)} has {size} workers that match and are large enough"
    where = f" with the same {' and '.join(required.domain)}" if required.domain else ""
    return f"no {gang.slices} groups by {required.group}{where} have {size} workers each that match and are large enough"


def _lacking_device(ledger: Ledger, wanted: Device | None, hosts: int) -> str:
    """That no host has the device, and which devices there are; empty when some host has it, or
    none is wanted.
    """
    workers = [worker for worker in ledger.workers.values() if worker.state is not WorkerState.LOST]
    there = sorted(
        {
            (str(kind), str(worker.attributes.get("device-variant", "")))
            for worker in workers
            if (kind := worker.attributes.get("device-type"))
        }
    )
    if wanted is None or any(
        kind == wanted.kind and {AUTO, variant} & {*wanted.variants} for kind, variant in there
    ):
        return ""
    found = ", ".join(f"{kind} {variant}".strip() for kind, variant in there) or "no gpu or tpu"
    return f"none of {hosts} has {wanted.kind} {' or '.join(wanted.variants)}; there is {found}"
