"""What a job asks for, in words: the facts that `iris show` and the page of a job list. Pure.

A field that differs from its default has a row here, so that nobody looks for what the job was
given in vain.
"""

from __future__ import annotations

from collections.abc import Iterator

from iris_core.moments import show_duration
from iris_core.placement.constraints import describe
from iris_core.spec.jobs import DEFAULT_MAX_BACKOFF_S, DEFAULT_REQUEUES, Coscheduling, JobSpec
from iris_core.spec.resources import REQUESTED, ResourceRequest
from iris_core.units import counted, show_cores


def facts_of(spec: JobSpec, grace_s: float | None = None) -> Iterator[tuple[str, str]]:
    """Name and value of each fact; not the command, the owner, the band, the labels or what the job
    waits for. ``grace_s``: its grace period in this cluster, if that is known.
    """
    if spec.project:
        yield "project", spec.project
    yield from resource_facts(spec.resources)
    for constraint in spec.constraints:
        yield "hosts" if constraint.mode == "required" else "preferred hosts", describe(constraint)
    if spec.coscheduling is not None:
        yield "coscheduled", _coscheduled(spec.coscheduling)
    if spec.spread != "hosts":
        yield "spread", "over as few hosts as possible"
    if spec.array:
        yield "array", spec.array.replace(",", ", ")
    if spec.each_line:
        yield "values", f"the lines of {spec.each_line}"
    if spec.max_parallel:
        yield "at a time", counted(spec.max_parallel, "task")
    yield from _ends(spec, grace_s)
    for rule in spec.notify:
        yield f"tells {rule.to}", ", ".join(rule.on)
    yield from _processes(spec)
    if spec.ports:
        yield "ports", ", ".join(spec.ports)
    if spec.output:
        yield "output", spec.output
    if spec.terminal:
        yield "terminal", "it ends when nobody is connected to it"


def _processes(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """What the processes of tasks are made from."""
    if spec.environment is not None and spec.environment.image:
        yield "image", spec.environment.image
    if spec.preload:
        yield "preloaded", ", ".join(spec.preload)
    if spec.calls is not None and spec.calls.reuse > 1:
        yield "reuse", f"a process takes up to {spec.calls.reuse} calls"
    if spec.calls is not None and spec.calls.fresh == "process":
        yield "fresh", "each call has a process of its own"


def resource_facts(asked: ResourceRequest) -> Iterator[tuple[str, str]]:
    """What one task asks of its host."""
    for resource in REQUESTED:
        if amount := getattr(asked, resource.name):
            yield resource.words, resource.unit.show(amount)
    if limit := asked.cpu_limit_millis:
        yield "cpu limit", show_cores(limit)
    if device := asked.device:
        yield "device", f"{' or '.join(device.variants)} × {device.count}"


def _coscheduled(gang: Coscheduling) -> str:
    several = f"{gang.slices} slices " if gang.slices > 1 else ""
    within = f" within one {gang.within}" if gang.within else ""
    levels = ", ".join(
        f"{level.key}{' (preferred)' if level.mode == 'preferred' else ''}" for level in gang.levels
    )
    return (
        f"{several}by {levels}{within}{', done when task 0 is' if gang.success == 'leader' else ''}"
    )


def _ends(spec: JobSpec, grace_s: float | None) -> Iterator[tuple[str, str]]:
    """What follows when a task ends, and what ends it."""
    yield (
        "retries",
        f"{spec.max_retries_failure} after failures, {spec.max_retries_preemption} after preemptions",
    )
    if spec.max_task_failures:
        yield "may fail", f"{spec.max_task_failures} of the tasks"
    for rule in spec.on_exit:
        yield f"on exit {', '.join(map(str, rule.codes))}", rule.do
    if spec.max_requeues != DEFAULT_REQUEUES:
        yield "requeues", f"at most {spec.max_requeues}"
    if spec.backoff_s:
        doubled = (
            f", doubled up to {show_duration(spec.max_backoff_s)}"
            if spec.max_backoff_s > spec.backoff_s
            else ""
        )
        yield "backoff", f"{show_duration(spec.backoff_s)}{doubled}"
    elif spec.max_backoff_s != DEFAULT_MAX_BACKOFF_S:
        yield "longest backoff", show_duration(spec.max_backoff_s)
    if spec.stop is not None:
        yield "stopped by", f"{spec.stop.signal}{_killed(spec.stop.grace_s, grace_s)}"
    if spec.notice is not None:
        yield (
            "notice",
            f"{spec.notice.signal}, {show_duration(spec.notice.before_s)} before the time limit",
        )
    if spec.timeout_s is not None:
        yield "timeout", show_duration(spec.timeout_s)
    if spec.on_timeout != "kill":
        yield "at its timeout", "requeued"
    if spec.protect_s is not None:
        yield "protected", f"from preemption for its first {show_duration(spec.protect_s)}"
    if spec.scheduling_timeout_s is not None:
        yield "scheduling timeout", show_duration(spec.scheduling_timeout_s)


def _killed(asked_s: float | None, given_s: float | None) -> str:
    """When KILL follows the signal, by what a job asks for and by what the cluster gives it."""
    if asked_s is None:
        return ""
    if given_s is None or given_s == asked_s:
        return f", KILL {show_duration(asked_s)} later"
    return (
        f", KILL {show_duration(given_s)} later: it asks for {show_duration(asked_s)}, and the cluster "
        "gives no more ([state] max_grace_s)"
    )
