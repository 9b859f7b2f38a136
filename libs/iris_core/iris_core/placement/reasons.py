"""Reasons why a task is pending: one enumeration for API, CLI, dashboard, metric labels and
documentation anchors.

A reason is a typed value; its text is made only here. Source:
docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from iris_core.limits import SHOWN
from iris_core.moments import show_duration
from iris_core.quota import UserLimit
from iris_core.spec.resources import RESOURCES, Resource
from iris_core.units import counted


class ReasonCode(StrEnum):
    """Why a task is pending, in the order in which reasons are checked; one for each resource, as
    ``NOT_ENOUGH_CPU``.
    """

    _ignore_ = "resource"
    NOT_YET_LOOKED_AT = "not_yet_looked_at"
    NO_WORKERS = "no_workers"
    NO_MATCH = "no_match"
    OVER_QUOTA = "over_quota"
    for resource in RESOURCES:
        vars()[f"NOT_ENOUGH_{resource.word.upper()}"] = f"not_enough_{resource.word}"
    BUILDING_WINDOW_FULL = "building_window_full"
    GANG_NEEDS_GROUP = "gang_needs_group"
    BEHIND = "behind"
    WAITING_FOR_VICTIM = "waiting_for_victim"
    RESERVED_FOR_GANG = "reserved_for_gang"
    DELAYED = "delayed"
    ARRAY_LIMIT = "array_limit"
    DEPENDENCY = "dependency"
    NOT_BEFORE = "not_before"
    SINGLETON = "singleton"
    HELD = "held"
    RETRY_BACKOFF = "retry_backoff"
    PROTECTED = "protected"
    HOST_RESERVED = "host_reserved"
    RESERVED_FOR_TASK = "reserved_for_task"
    SLICE_COMING = "slice_coming"


class Explanation(NamedTuple):
    """What a reason means, and what can be done about it."""

    meaning: str
    remedy: str


def _short_of(resource: Resource) -> Explanation:
    return Explanation(
        f"No matching worker has that much of its {resource.words} free; the reason gives the largest free amount.",
        "Wait for tasks to end, ask for less, or add workers. When no worker is that large, only a larger one helps.",
    )


EXPLANATIONS: Mapping[ReasonCode, Explanation] = {
    ReasonCode.NOT_YET_LOOKED_AT: Explanation(
        "No scheduler has examined the job yet.",
        "Wait a second. When that lasts, no scheduler runs, or it has no current records: see the alerts "
        "IrisNoScheduler and IrisSchedulerStale.",
    ),
    ReasonCode.NO_WORKERS: Explanation(
        "No worker is registered, or none that matches accepts new work because it is LOST, DRAINING or DEGRADED.",
        "iris worker list shows the workers and their states; start one, or undrain one. Those of iris up that have "
        "ended start again with iris down and iris up.",
    ),
    ReasonCode.NO_MATCH: Explanation(
        "No worker satisfies the constraints; the reason counts the workers that each constraint excludes.",
        "Correct or drop the constraint that excludes most; iris worker show W prints the attributes of a worker.",
    ),
    ReasonCode.OVER_QUOTA: Explanation(
        "The user, or the project, has reached a limit on running resources; other tasks of the same band go first.",
        "Wait for tasks of that user or project to end; iris quota show and iris project show print limits and use, "
        "an admin changes them.",
    ),
    **{ReasonCode(f"not_enough_{resource.word}"): _short_of(resource) for resource in RESOURCES},
    ReasonCode.BUILDING_WINDOW_FULL: Explanation(
        "Workers with free resources are preparing as many tasks as they may at once, and of this user an equal share, "
        "or have max_attempts open attempts. The reason names the user with most of the tasks that prepare.",
        "Wait: preparing takes seconds. When it lasts, look at what the tasks prepare, and at max_attempts.",
    ),
    ReasonCode.GANG_NEEDS_GROUP: Explanation(
        "No group of hosts has a free host for every task of the gang; the reason names the best group and who holds "
        "the rest of it.",
        "Wait for those jobs to end, ask for fewer tasks or slices, or add a group that is large enough. When fewer "
        "groups are large enough than it needs, only the last two help.",
    ),
    ReasonCode.BEHIND: Explanation(
        "There was capacity, and tasks before it in the queue took it.",
        "Wait; iris queue shows the order. A higher band goes first.",
    ),
    ReasonCode.WAITING_FOR_VICTIM: Explanation(
        "Capacity is nominated for it, and the preempted work there is still stopping.",
        "Wait: that work is killed after its grace period; iris cancel --now, by its owner or an admin, kills it now.",
    ),
    ReasonCode.RESERVED_FOR_GANG: Explanation(
        "The free capacity is reserved for a gang that has waited longer than gang_reservation_after_s.",
        "Wait for the gang to start, or ask for workers that the gang cannot use.",
    ),
    ReasonCode.DELAYED: Explanation(
        "It is retried after a pause, or waits until its last attempt or the earlier run of its name has ended.",
        "Wait. When a host that is gone for good does not report the end, declare it lost: iris worker mark-lost HOST.",
    ),
    ReasonCode.ARRAY_LIMIT: Explanation(
        "As many of the job's tasks run as may at a time (max_parallel). A task that is being stopped counts until its "
        "end is known.",
        "Wait: the job's first pending task gets the next free place. Or raise it: iris update JOB --max-parallel N.",
    ),
    ReasonCode.DEPENDENCY: Explanation(
        "It waits for another job, or each of its tasks for a task of that job (--after).",
        "Wait for that job: iris why JOB. When it ends otherwise than asked for, this one is killed; with "
        "--each, the task that waited for it fails.",
    ),
    ReasonCode.NOT_BEFORE: Explanation(
        "Its owner does not want it to be placed before a time (--not-before).",
        "Wait until then.",
    ),
    ReasonCode.SINGLETON: Explanation(
        "An earlier job of the user with the same singleton key has not ended yet (--singleton).",
        "Wait for that job to end, or cancel it.",
    ),
    ReasonCode.HELD: Explanation(
        "It, or a part of the queue that it belongs to, is held; the reason names who holds it.",
        "Release it: iris release JOB, or what of the queue is held: iris queue release.",
    ),
    ReasonCode.RETRY_BACKOFF: Explanation(
        "Its last attempt failed, and it is tried again after a pause that grows with each failure (--backoff).",
        "Wait until then; iris logs TASK shows why the last attempt failed.",
    ),
    ReasonCode.PROTECTED: Explanation(
        "Work of a lower band would be preempted for it, and has not run for as long as its job protects it "
        "(--protect).",
        "Wait until then, or cancel that work.",
    ),
    ReasonCode.HOST_RESERVED: Explanation(
        "It has waited longer than task_reservation_after_s while smaller tasks took what became free, so a host is "
        "reserved for it: nothing that may run for longer than what it waits for is placed there.",
        "Wait for the tasks that the reason names to end. When one has no time limit and runs on, end it or its host's "
        "work: iris cancel JOB; the reservation moves when another host is nearer to being free.",
    ),
    ReasonCode.RESERVED_FOR_TASK: Explanation(
        "The free capacity is on a host that is reserved for a task that has waited longer than "
        "task_reservation_after_s.",
        "Wait for that task to start, or ask for a --timeout so short that yours ends before it can.",
    ),
    ReasonCode.SLICE_COMING: Explanation(
        "A slice of a pool has been asked for, and will hold it.",
        "Wait; iris pool show POOL shows the slice, and how long slices of that pool take.",
    ),
}
"""For docs/reasons.md and `iris why`."""

_BYTES = 100
"""Of a reason besides its text."""


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the pending tasks of one job wait.

    Attributes:
        facts: the values in the message, e.g. ``{"asked": 8, "best_free": 4, "workers_short": 12}``
            or, for no_match, ``{"removed_by": {"zone eq eu-1": 7, "device-type eq tpu": 3}}``.
    """

    code: ReasonCode
    message: str
    facts: dict[str, Any] = {}


def size_of(reason: Reason) -> int:
    """About how many bytes a reason has in a message: its facts hold its text again."""
    return _BYTES + 2 * len(reason.message.encode())


NOT_YET_LOOKED_AT = Reason(ReasonCode.NOT_YET_LOOKED_AT, "not yet considered by the scheduler")


def no_workers(by_state: Mapping[str, int], why: str = "") -> Reason:
    """No worker that matches accepts work; ``by_state`` counts the matching workers by state,
    ``why``: of one.
    """
    if not by_state:
        return Reason(ReasonCode.NO_WORKERS, "no workers are registered")
    words = f"no worker that matches takes work: {_listed(by_state)}" + (f"; {why}" if why else "")
    return Reason(ReasonCode.NO_WORKERS, words, {"by_state": dict(by_state)})


def slice_coming(facts: Mapping[str, Any], asked_s: int) -> Reason:
    """A slice that was asked for so long ago will hold it; ``facts``: its name, pool and status,
    and the times that slices of that pool take, if they are known.
    """
    asked = show_duration(asked_s)
    words = f"waits for slice {facts['slice']}: {facts['status']}, requested {asked} ago"
    if "p50_s" in facts:
        half, most = (show_duration(round(facts[name])) for name in ("p50_s", "p90_s"))
        words += f"; in this pool slices take {half} (p50), {most} (p90)"
    return Reason(ReasonCode.SLICE_COMING, words, dict(facts))


def no_match(workers: int, removed_by: Mapping[str, int]) -> Reason:
    """None of ``workers`` hosts matches; ``removed_by`` maps each constraint to the number of hosts
    that fail it.
    """
    removed_by = dict(islice(removed_by.items(), SHOWN))
    words = ", ".join(f"'{condition}' removes {count}" for condition, count in removed_by.items())
    message = f"none of {counted(workers, 'worker')} matches: {words}"
    return Reason(ReasonCode.NO_MATCH, message, {"workers": workers, "removed_by": removed_by})


def over_quota(user: str, limit: UserLimit, running: int, most: int, source: str = "") -> Reason:
    """The user has reached a limit on a resource, so other users of the band are placed first.
    ``source``: where the limit comes from, as of `Quota.source_words`.
    """
    assert limit.resource is not None
    show = limit.unit.show
    held = f"{user} runs {show(running)} of at most {show(most)} of {limit.resource.words}"
    message = f"{held}{source}; others of the band go first"
    facts = {"user": user, "resource": limit.name, "running": running, "limit": most}
    return Reason(ReasonCode.OVER_QUOTA, message, facts)


def over_project_limit(path: str, limit: UserLimit, running: int, most: int, asked: int) -> Reason:
    """A project has reached a limit on a resource, so other work of the band is placed first.
    ``asked``: for the next task.
    """
    assert limit.resource is not None
    show = limit.unit.show
    held = f"project {path} runs {show(running)} of at most {show(most)} of {limit.resource.words}"
    message = f"{held}, and a task asks for {show(asked)}; others of the band go first"
    facts = {"project": path, "resource": limit.resource.name}
    return Reason(
        ReasonCode.OVER_QUOTA, message, facts | {"limit": most, "used": running, "asked": asked}
    )


def not_enough(
    resource: Resource,
    asked: int,
    best_free: int,
    workers_short: int,
    workers: int,
    largest: int,
    *,
    stuck: Sequence[str] = (),
) -> Reason:
    """No matching host has enough free.

    Args:
        asked, best_free, largest: in the unit of ``resource``; ``largest`` is the largest total of
            a matching host.
        workers_short: how many of the ``workers`` matching hosts have less free than requested.
        stuck: hosts with an attempt that was ordered to stop and has not stopped in time.
    """
    code = ReasonCode(f"not_enough_{resource.word}")
    show = resource.unit.show
    facts = {
        "resource": resource.name,
        "asked": asked,
        "best_free": best_free,
        "workers_short": workers_short,
        "workers": workers,
        "largest": largest,
    }
    message = f"not enough {resource.words}: asks for {show(asked)}, the best worker has {show(best_free)} free"
    if largest < asked:
        return Reason(
            code, f"{message}; no matching worker is that large", {**facts, "never": True}
        )
    message += f"; {workers_short} of {counted(workers, 'matching worker')} short of it"
    return _with_stuck(Reason(code, message, facts), stuck)


def _with_stuck(reason: Reason, stuck: Sequence[str]) -> Reason:
    if not stuck:
        return reason
    message = f"{reason.message}; what was told to stop on {_some(stuck)} has not stopped in time"
    return Reason(reason.code, message, reason.facts | {"stuck": list(stuck[:SHOWN])})


def building_window_full(workers: int, user: str = "") -> Reason:
    """Hosts with free resources have reached their limit of tasks that prepare, or of open
    attempts; ``user``: whose most of those are that prepare.
    """
    message = f"{counted(workers, 'worker')} with room for it prepare or run as many tasks as they may at once"
    facts: dict[str, Any] = {"workers": workers}
    if user:
        message += f"; most of those that prepare are {user}'s"
        facts["user"] = user
    return Reason(ReasonCode.BUILDING_WINDOW_FULL, message, facts)


def gang_needs_group(
    group_by: str,
    needs: int,
    best_group: str,
    free: int,
    of: int,
    *,
    held: Mapping[str, Sequence[str]] | None = None,
    stuck: Sequence[str] = (),
    outside: Sequence[tuple[str, str, int]] = (),
) -> Reason:
    """No group has a free host for every task; ``best_group`` has ``free`` of its ``of`` matching
    hosts free.

    Args:
        group_by: the attribute of a group; empty when the gang may be on any hosts.
        held: why hosts of the best group are not free, in words such as "held by /other", and which
            hosts.
        stuck: as of `not_enough`.
        outside: of each level outside of the group, its attribute, the value with the most free
            hosts, how many it has.
    """
    facts: dict[str, Any] = {
        "group_by": group_by,
        "needs": needs,
        "best_group": best_group,
        "free": free,
        "of": of,
    }
    same = f" with the same {group_by}" if group_by else ""
    start = f"needs {counted(needs, 'worker')} free at once{same}"
    if outside:
        facts["outside"] = [
            {"key": key, "best": best, "free": number} for key, best, number in outside
        ]
    if not of:
        return Reason(
            ReasonCode.GANG_NEEDS_GROUP,
            f"{start}; no matching worker has {group_by}",
            facts | {"never": True},
        )
    message = (
        f"{start}; the best group, {best_group}, has {free} of {of}"
        if group_by
        else f"{start}; {free} of {of} are"
    )
    if outside:
        message = f"no {group_by} has {counted(needs, 'free host')}; the best, {best_group}, has {free} of {of}"
        message += "".join(f"; {key} {best} has {number}" for key, best, number in outside)
    if held:
        message += ": " + "; ".join(f"{_some(workers)} {why}" for why, workers in held.items())
        facts["held"] = {worker: why for why, workers in held.items() for worker in workers}
    return _with_stuck(Reason(ReasonCode.GANG_NEEDS_GROUP, message, facts), stuck)


def gang_needs_slices(
    group_by: str,
    slices: int,
    workers: int,
    free: int,
    there: int,
    *,
    domain: str = "",
    held: Mapping[str, Sequence[str]] | None = None,
    stuck: Sequence[str] = (),
) -> Reason:
    """Fewer than ``slices`` groups have ``workers`` free hosts each: ``free``, of ``there`` that
    are large enough.

    Args:
        domain: where the most are free, in words such as "zone eu"; empty when the slices may be
        anywhere. held, stuck: as of `gang_needs_group`, of the groups that are nearest to being
            free.
    """
    facts: dict[str, Any] = {
        "group_by": group_by,
        "slices": slices,
        "workers": workers,
        "free": free,
        "there": there,
    }
    message = f"{free} of {slices} slices free" + (
        f" in {domain}, which has most" if domain else ""
    )
    message += f"; a slice is {counted(workers, 'worker')} free at once with the same {group_by}"
    message += f", and there are {there} that match" if there < slices else ""
    if domain:
        facts["domain"] = domain
    if held:
        message += ": " + "; ".join(f"{_some(hosts)} {why}" for why, hosts in held.items())
        facts["held"] = {host: why for why, hosts in held.items() for host in hosts}
    return _with_stuck(Reason(ReasonCode.GANG_NEEDS_GROUP, message, facts), stuck)


def by_variant(reason: Reason, counts: Mapping[str, tuple[int, int]]) -> Reason:
    """A reason of work that takes any of several variants: of each, how many workers have room for
    a task, and of how many that match.
    """
    words = ", ".join(f"{variant} {free} of {of}" for variant, (free, of) in counts.items())
    facts = reason.facts | {
        "variants": {variant: {"free": free, "of": of} for variant, (free, of) in counts.items()}
    }
    return Reason(reason.code, f"{reason.message}; workers free by variant: {words}", facts)


def behind(tasks: int) -> Reason:
    """There was capacity, and tasks before it in the queue took it."""
    return Reason(
        ReasonCode.BEHIND, f"behind {counted(tasks, 'task')} that came first", {"tasks": tasks}
    )


def waiting_for_victim(workers: Sequence[str]) -> Reason:
    """Its capacity is nominated; the preempted work there is still stopping."""
    message = f"waits for preempted work to stop on {_some(workers)}"
    return Reason(ReasonCode.WAITING_FOR_VICTIM, message, {"workers": list(workers[:SHOWN])})


def reserved_for_gang(gang: str, workers: int) -> Reason:
    """The only free capacity is reserved for a gang that has waited longer."""
    message = (
        f"{counted(workers, 'worker')} with room for it kept for {gang}, which has waited longer"
    )
    return Reason(ReasonCode.RESERVED_FOR_GANG, message, {"gang": gang, "workers": workers})


def host_reserved(worker: str, tasks: Sequence[str], until_ms: int | None) -> Reason:
    """A worker is reserved for it; ``tasks`` must end there, at ``until_ms`` at the latest, or None
    when one of them has no time limit.
    """
    message = f"{worker} is reserved for it"
    if tasks:
        message += f" and {_awaited(tasks, until_ms)}"
    facts = {"worker": worker, "tasks": list(tasks[:SHOWN]), "until_ms": until_ms}
    return Reason(ReasonCode.HOST_RESERVED, message, facts)


def reserved_for_task(job: str, worker: str) -> Reason:
    """The only free capacity is on a worker reserved for a task that has waited longer."""
    message = f"{worker}, which has room for it, is kept for {job}, which has waited longer"
    return Reason(ReasonCode.RESERVED_FOR_TASK, message, {"job": job, "worker": worker})


def reserved_for_waiting(kept: Reason, waiting: Reason) -> Reason:
    """A worker is reserved for another task, see `reserved_for_task`, with what that one waits for,
    see `host_reserved`.
    """
    tasks = waiting.facts["tasks"]
    until_ms = waiting.facts["until_ms"]
    message = f"{kept.message}, and {_awaited(tasks, until_ms)}" if tasks else kept.message
    return Reason(kept.code, message, kept.facts | {"tasks": tasks, "until_ms": until_ms})


def _awaited(tasks: Sequence[str], until_ms: int | None) -> str:
    """What must end on a reserved worker, and when that is at the latest."""
    words = f"waits for {_some(tasks)} there to end"
    if until_ms is None:
        return f"{words}; not all of them have a time limit"
    return f"{words}, at the latest at {_moment(until_ms)}"


def array_limit(most: int) -> Reason:
    """As many tasks of the job have an open attempt as may at a time."""
    message = f"its job runs at most {counted(most, 'task')} at a time (max_parallel)"
    return Reason(ReasonCode.ARRAY_LIMIT, message, {"max_parallel": most})


def delayed(until_ms: int, why: str) -> Reason:
    """It may not be placed yet; ``why`` completes "delayed:"."""
    return Reason(ReasonCode.DELAYED, f"delayed: {why}", {"until_ms": until_ms})


def still_ending(workers: Sequence[str]) -> Reason:
    """The last attempt was ordered to stop and has not reported its end; a task never runs twice at
    a time.
    """
    message = f"waits until its last attempt is known to have stopped on {_some(workers)}"
    return Reason(ReasonCode.DELAYED, message, {"workers": list(workers[:SHOWN])})


def run_before_ending(workers: Sequence[str]) -> Reason:
    """An earlier job of the same name was replaced or has ended, and some of its attempts may still
    run.
    """
    message = f"waits for the earlier run of its name to end on {_some(workers)}"
    return Reason(ReasonCode.DELAYED, message, {"workers": list(workers[:SHOWN])})


def waits_for_job(name: str, when: str, *, each: bool = False) -> Reason:
    """A gate on another job is closed; ``name`` is the job, or with ``each`` the task."""
    wanted = {"ok": "succeed", "any": "end", "notok": "end without success", "start": "start"}[when]
    words = (
        f"each task waits for its counterpart in {name} to {wanted}"
        if each
        else f"waits for {name} to {wanted}"
    )
    return Reason(ReasonCode.DEPENDENCY, words, {"job": name, "when": when})


def not_before(until_ms: int) -> Reason:
    """Its owner wants it to wait until a time."""
    return Reason(ReasonCode.NOT_BEFORE, f"not before {_moment(until_ms)}", {"until_ms": until_ms})


def singleton(key: str, before: str) -> Reason:
    """Another job with the same key comes first."""
    words = f"waits for {before} to end, which has the same singleton key {key}"
    return Reason(ReasonCode.SINGLETON, words, {"job": before, "key": key})


def held(by: str, why: str = "", part: str = "") -> Reason:
    """Somebody holds it, or the ``part`` of the queue that it belongs to; ``by`` is empty when the
    job was submitted so.
    """
    words = f"held by {by}" if by else "held since its submission"
    words += f" with {part}" if part else ""
    return Reason(
        ReasonCode.HELD,
        f"{words}: {why}" if why else words,
        {"by": by} | ({"queue": part} if part else {}),
    )


def retry_backoff(until_ms: int) -> Reason:
    """It is tried again after a pause that its owner has asked for."""
    return Reason(
        ReasonCode.RETRY_BACKOFF, f"is tried again at {_moment(until_ms)}", {"until_ms": until_ms}
    )


def protected(jobs: Sequence[str], until_ms: int) -> Reason:
    """Its victims may not be preempted before a time."""
    message = f"waits until {_some(jobs)} may be preempted at {_moment(until_ms)} (protect)"
    return Reason(ReasonCode.PROTECTED, message, {"jobs": list(jobs[:SHOWN]), "until_ms": until_ms})


def _moment(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
