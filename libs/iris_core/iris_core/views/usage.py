"""Objects of the HTTP API about what jobs have held and used. Stable: fields are only added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from iris_core.states import Cause
from iris_core.views.jobs import View

NOT_BILLED = frozenset(
    cause.value
    for cause in (
        *(
            Cause.PREEMPTED,
            Cause.RECLAIMED,
            Cause.WORKER_LOST,
            Cause.WORKER_CRASHED,
            Cause.MISSING,
            Cause.INFRASTRUCTURE,
        ),
        *(Cause.UNDELIVERED, Cause.PREPARE_TIMEOUT, Cause.START_TIMEOUT, Cause.HANDED_BACK),
    )
)
"""Outcomes of attempts that were lost by the cluster and not by their job: shown, and not
billed.
"""


class UsedView(View, kw_only=True):
    """What attempts asked for and held, and what of it they used.

    Attributes:
        attempts: how many have ended; of those that run: how many there are.
        cpu_seconds: processors asked for, times the seconds for which they were held.
        memory_gib_seconds: memory asked for, in GiB, times seconds. chip_seconds: devices asked
            for, by variant.
        cpu_used_seconds: processor time that was used. memory_peak_gib_seconds: the peak of memory
            times seconds.
    """

    attempts: int = 0
    cpu_seconds: float = 0.0
    memory_gib_seconds: float = 0.0
    chip_seconds: dict[str, float] = msgspec.field(default_factory=dict)
    cpu_used_seconds: float = 0.0
    memory_peak_gib_seconds: float = 0.0


class StoredUsageView(View, kw_only=True):
    """What is kept of the jobs of one user that are on record, and of the user's bundles.

    Attributes:
        jobs: how many there are. job_bytes: memory of what they say.
        artifact_bytes, output_bytes, result_bytes: in the stores of output directories, output (that
            of running attempts as of the last heartbeat) and results of calls.
        bundle_bytes: of uploaded code, as of some seconds ago; of what several users have sent an
            equal part.
    """

    user: str
    jobs: int = 0
    job_bytes: int = 0
    artifact_bytes: int = 0
    output_bytes: int = 0
    result_bytes: int = 0
    bundle_bytes: int = 0


class UsageView(View, kw_only=True):
    """What attempts have held and used, of one user, project, label, day or job, by what came of them.

    Attributes:
        total: all of it. useful: of attempts that succeeded, and of routes that were stopped. lost:
            of the others, by why they ended. running: until now, of attempts whose end is not
                known; what they used is added then.
        billed: total, without what the cluster lost (preemption, hosts). outside: of that, what was
            on hosts of no pool.
        cost: of what is billed: on hosts of pools ``pools_cost``, parts of the prices of their
            slices; outside by the prices of the gateway. null without any price.
        pool: by pool; null: outside of pools. Where ``user`` is null, ``total`` is what its slices
            offered and nobody held, and ``cost`` what they cost and nobody is billed for.
        project: with the projects below it, of which ``own`` is its own part of ``total``.
        label: the value of the label ``project``. job_id: the id of ``job``.
        users: by label, whose jobs had it, by name: anybody may give a job any label.
    """

    user: str | None = None
    project: str | None = None
    day: str | None = None
    job: str | None = None
    job_id: str | None = None
    total: UsedView
    useful: UsedView
    lost: dict[str, UsedView]
    running: UsedView
    billed: UsedView
    cost: float | None = None
    users: tuple[str, ...] = ()
    label: str | None = None
    own: UsedView | None = None
    pool: str | None = None
    outside: UsedView | None = None
    pools_cost: float | None = None

    def price(self, prices: Prices) -> None:
        """Set the cost, with the prices of what ran outside of pools."""
        outside = prices.cost(self.outside or self.billed)
        parts = [cost for cost in (outside, self.pools_cost) if cost is not None]
        self.cost = sum(parts) if parts else None


HOUR_S = 3600
IDLE = "(idle)"
"""In the place of the user of what nobody held."""
_USERS_SHOWN = 5
_Row = Mapping[str, Any]
_SUMS = (
    "attempts",
    "cpu_seconds",
    "memory_gib_seconds",
    "cpu_used_seconds",
    "memory_peak_gib_seconds",
)
_PARTS = ("total", "useful", "running", "billed")
CSV_COLUMNS = (
    *("user", "project", "label", "day", "job", "job_id"),
    *(f"{part}_{name}" for part in _PARTS for name in (*_SUMS, "chip_seconds")),
    *("lost_cpu_seconds", "lost_chip_seconds", "lost_by_cause", "cost", "users"),
    *("pool", "pools_cost"),
)
"""The head of a CSV. Devices are written ``H100=3600 A100=60``, causes ``preempted=12.5`` in
seconds of processors.
"""


def csv_row(row: UsageView) -> list[object]:
    """A row in the order of `CSV_COLUMNS`. A text that a spreadsheet would take for a formula
    begins with ``'``.
    """
    whose = (row.user, row.project, row.label, row.day, row.job, row.job_id)
    names = [_plain(name or "") for name in whose]
    sums: list[object] = []
    for part in _PARTS:
        used: UsedView = getattr(row, part)
        sums += [*(getattr(used, name) for name in _SUMS), _pairs(used.chip_seconds)]
    chips: dict[str, float] = {}
    for used in row.lost.values():
        for variant, seconds in used.chip_seconds.items():
            chips[variant] = chips.get(variant, 0.0) + seconds
    causes = {cause: used.cpu_seconds for cause, used in row.lost.items()}
    cost = "" if row.cost is None else row.cost
    lost = (sum(causes.values()), _pairs(chips), _pairs(causes))
    in_pools = (row.pool or "", "" if row.pools_cost is None else row.pools_cost)
    return [*names, *sums, *lost, cost, _plain(" ".join(row.users)), *in_pools]


def show_cost(row: _Row) -> str:
    """``1,234.50``; of less than a hundredth ``0.0042``; empty without any price."""
    cost = row["cost"]
    if cost is None:
        return ""
    return f"{cost:.2g}" if 0 < cost < 0.01 else f"{cost:,.2f}"


def show_users(row: _Row) -> str:
    """Whose jobs a project's are: the first names, and how many more there are."""
    users = row.get("users") or []
    more = f" and {len(users) - _USERS_SHOWN} more" if len(users) > _USERS_SHOWN else ""
    return ", ".join(users[:_USERS_SHOWN]) + more


def _plain(text: str) -> str:
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _pairs(amounts: dict[str, float]) -> str:
    return " ".join(f"{name}={amount:g}" for name, amount in amounts.items())


class Prices:
    """Of an hour of a processor (``cpu``), of a GiB of memory (``memory``), and of a device of each
    variant.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        """``H100=2.5`` each. Raises ValueError naming one that is not such a price."""
        self._prices: dict[str, float] = {}
        for text in texts:
            name, _, price = text.partition("=")
            try:
                amount = float(price)
            except ValueError:
                amount = -1.0
            if not name or not 0 <= amount < float("inf"):
                raise ValueError(
                    f"{text!r} is not a price, such as cpu=0.04, memory=0.005 or H100=2.5"
                )
            self._prices[name] = amount

    def cost(self, used: UsedView) -> float | None:
        """What attempts cost; None without prices."""
        if not self._prices:
            return None
        held = {"cpu": used.cpu_seconds, "memory": used.memory_gib_seconds, **used.chip_seconds}
        return sum(self._prices.get(name, 0.0) * seconds for name, seconds in held.items()) / HOUR_S


# ── for people; a row is the JSON of a `UsageView` ────────────────────────────────────────────────


def show_hours(seconds: float) -> str:
    """``<0.001``, ``0.25``, ``12.5``, ``1,234``."""
    hours = seconds / HOUR_S
    if 0 < hours < 0.001:
        return "<0.001"
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def show_devices(used: _Row) -> str:
    """``H100 12.5, A100 3``: hours by variant."""
    return ", ".join(
        f"{variant or 'devices'} {show_hours(s)}" for variant, s in used["chip_seconds"].items()
    )


def _is_idle(row: _Row) -> bool:
    """Whether a row is what no attempt held on a pool's hosts."""
    return row.get("pool") is not None and row["user"] is None


def cpu_share(row: _Row) -> str:
    """Processor time used, of what attempts that have ended had asked for."""
    if _is_idle(row):
        return "-"
    return _share(row["total"]["cpu_used_seconds"], _ended(row, "cpu_seconds"))


def memory_share(row: _Row) -> str:
    """The peak of memory, of what attempts that have ended had asked for."""
    if _is_idle(row):
        return "-"
    return _share(row["total"]["memory_peak_gib_seconds"], _ended(row, "memory_gib_seconds"))


def show_lost(row: _Row) -> str:
    """``12% preempted, 3% failed``: of processors; with devices ``12% of devices preempted, 3% of
    CPU failed``.
    """
    devices = sum(row["total"]["chip_seconds"].values())
    parts = []
    for why, used in row["lost"].items():
        if of_devices := sum(used["chip_seconds"].values()):
            part = of_devices
            whole = devices
            of = " of devices"
        else:
            part = used["cpu_seconds"]
            whole = row["total"]["cpu_seconds"]
            of = " of CPU" if devices else ""
        parts.append(
            (part / whole if whole else 0.0, f"{_share(part, whole)}{of} {why.replace('_', ' ')}")
        )
    return ", ".join(words for _, words in sorted(parts, key=lambda part: -part[0]))


def _share(part: float, whole: float) -> str:
    if whole <= 0:
        return "-"
    return "<1%" if 0 < part / whole < 0.01 else f"{part / whole:.0%}"


def _ended(row: _Row, name: str) -> float:
    seconds: float = row["total"][name] - row["running"][name]
    return seconds
