"""What each project, and each user of one, has used of late: the order of fair share follows from it.

Siblings are the projects right below one, and the users whose jobs are right in it, each of weight 1.
Of each the resources held, times how long, halve with every half-life. The largest of them against
the cluster's is its use. Its share is its part of the use of its siblings that have work, over its
part of their weights: 1 is just. The whole part of log2 of that is its step, and the steps on the way
from the root to a user, as one number, stand in the order of that user's jobs.

Steps change only in `renew`, at the end of a commit and by its time, so that a replay has the same.
Numbers are made by operations that every machine rounds alike. Out of scope: when it is on
(`Ledger.follow_weights`), and the order itself (`placement.priority`). Source:
docs/design/team.md#fair-share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import msgspec

from iris_core.placement.priority import LEAST_STEP, MOST_STEP, packed_steps
from iris_core.quota import RUNNING_LIMITS
from iris_core.spec.projects import ROOT, parent_of, upwards
from iris_core.spec.resources import Amount
from iris_core.units import DAY_MS

RENEW_MS = 60_000
"""How often the steps of all are renewed."""
FORGOTTEN = 20
"""Half-lives without work after which nothing is left of what was used."""
MARGIN = 1 / 128
"""A step is left when the share has passed its border by this part, so that nobody goes to and fro."""
WEEK_MS = 7 * DAY_MS
_WHOLE = 1_000_000
"""A weight of 1, and a use of one second of the whole cluster over 1,000: sums of whole numbers do
not depend on their order.
"""
_USE = 1_000 * _WHOLE
_TERMS = 18
_LN2 = 0.6931471805599453


class ShareKey(NamedTuple):
    """A user of a project, or with ``user`` empty the project itself with all below it."""

    path: str
    user: str

    @property
    def name(self) -> str:
        """What it is called beside its siblings."""
        return self.user or self.path

    @property
    def above(self) -> ShareKey:
        """The project of which it is a part."""
        return ShareKey(self.path if self.user else parent_of(self.path), "")


_TOP = ShareKey(ROOT, "")


class ShareNode(msgspec.Struct, array_like=True):
    """One project, or one user of it.

    Attributes:
        used: of each resource that `counted_of` names, the amount times seconds, as of ``at_ms``.
            held: what is held since then. running: by how many attempts.
        use: its use when its step was renewed last.
        steps: of a user, what schedulers know: the steps on the way to it.
    """

    path: str
    user: str
    at_ms: int
    used: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(RUNNING_LIMITS))
    held: list[int] = msgspec.field(default_factory=lambda: [0] * len(RUNNING_LIMITS))
    running: int = 0
    use: int = 0
    step: int = LEAST_STEP
    steps: int = 0


class StoredShares(msgspec.Struct, array_like=True):
    """All of it, in a snapshot."""

    nodes: list[ShareNode]
    capacity: list[int]
    renewed_ms: int


class ShareMove(NamedTuple):
    """The jobs of a user of a project have another place; ``waiting``: those with pending tasks."""

    key: ShareKey
    steps: int
    waiting: tuple[int, ...]


class Shares:
    """All projects and users of one cluster that have work, or had some of late.

    Attributes:
        enabled: whether anything is counted and ordered by it.
        now_ms: the time of the change that is applied.
        weights: by path, of projects whose weight was set.
        pending: how many tasks of each wait.
        undone: whose jobs have no steps any more, until `renew` tells it.
    """

    def __init__(self, half_life_ms: int = WEEK_MS) -> None:
        self.enabled = False
        self.now_ms = 0
        self.weights: dict[str, float] = {}
        self.pending = Counter[ShareKey]()
        self._half_life_ms = half_life_ms
        self._nodes: dict[ShareKey, ShareNode] = {}
        self._users: dict[str, set[str]] = {}
        self._waiting: dict[ShareKey, dict[int, int]] = {}
        self._sums: dict[ShareKey, list[int]] = {}
        self._capacity = [0] * len(RUNNING_LIMITS)
        self._renewed_ms = -1
        self._touched: dict[ShareKey, None] = {}
        self._fresh: dict[ShareKey, None] = {}
        self.undone: list[ShareMove] = []

    def begin(self, at_ms: int) -> None:
        """Count from now on."""
        self._clear()
        self.undone = []
        self.enabled = True
        self.now_ms = at_ms

    def end(self) -> None:
        """Forget everything; the next `renew` tells that there are no steps."""
        self.undone = [
            ShareMove(key, 0, tuple(self._waiting.get(key, ()))) for key in self._nodes if key.user
        ]
        self._clear()
        self.enabled = False

    def _clear(self) -> None:
        for known in (self.pending, self._nodes, self._waiting, self._sums, self._touched):
            known.clear()
        self._users.clear()
        self._fresh.clear()
        self._renewed_ms = -1

    # ── what happens ──────────────────────────────────────────────────────────────────────────────

    def wait(self, project: str, user: str, job: int, by: int) -> None:
        """So many more tasks of a job wait, or fewer."""
        key = ShareKey(project or ROOT, user)
        self._enter(key)
        jobs = self._waiting.setdefault(key, {})
        jobs[job] = jobs.get(job, 0) + by
        if not jobs[job]:
            del jobs[job]
        for one in self._way(key):
            was_active = self._is_active(one)
            self.pending[one] += by
            if not self.pending[one]:
                del self.pending[one]
            self._follow(one, was_active)

    def hold(self, project: str, user: str, amount: Amount, sign: int) -> None:
        """An attempt holds its place, or with ``sign`` -1 no longer."""
        key = ShareKey(project or ROOT, user)
        self._enter(key)
        self._touched[key] = None
        for one in self._way(key):
            was_active = self._is_active(one)
            node = self._nodes[one]
            node.used = self._used(node, self.now_ms)
            node.at_ms = self.now_ms
            more = counted_of(amount)
            node.held = [held + sign * part for held, part in zip(node.held, more, strict=True)]
            node.running += sign
            self._follow(one, was_active)

    def _enter(self, key: ShareKey) -> None:
        if key in self._nodes:
            return
        for one in self._way(key):
            if one not in self._nodes:
                self._nodes[one] = ShareNode(*one, self.now_ms)
        self._users.setdefault(key.path, set()).add(key.user)
        self._nodes[key].steps = self._steps(key)
        self._fresh[key] = None

    def _follow(self, key: ShareKey, was_active: bool) -> None:
        """It has work now, or none any more: its siblings share among those that have."""
        is_active = self._is_active(key)
        if key != _TOP and is_active is not was_active:
            sign = 1 if is_active else -1
            sums = self._sums.setdefault(key.above, [0, 0])
            sums[0] += sign * self._nodes[key].use
            sums[1] += sign * self._weight(key)

    def weigh(self, weights: dict[str, float]) -> None:
        """Take these weights."""
        self.weights = weights
        self._touched.update(dict.fromkeys(key for key in self._nodes if key.user))
        self._sum()

    # ── the order ─────────────────────────────────────────────────────────────────────────────────

    def steps_of(self, project: str, user: str) -> int:
        """The number that stands in the order of a user's jobs in a project; 0 while it is off."""
        if not self.enabled:
            return 0
        key = ShareKey(project or ROOT, user)
        node = self._nodes.get(key)
        return node.steps if node is not None else self._steps(key)

    def levels(self, project: str, user: str) -> list[int]:
        """The same by level: those of the projects on the way, the user's last."""
        if not self.enabled:
            return []
        return [self.step(one) for one in self._down(project, user)]

    def apart(self, one: tuple[str, str], other: tuple[str, str]) -> tuple[ShareKey, ShareKey]:
        """Where the steps of two users of projects differ first: the project or user of each there."""
        mine, theirs = self._down(*one), self._down(*other)
        length = max(len(mine), len(theirs))
        mine += mine[-1:] * (length - len(mine))
        theirs += theirs[-1:] * (length - len(theirs))
        pairs = list(zip(mine, theirs, strict=True))
        return next((pair for pair in pairs if self.step(pair[0]) != self.step(pair[1])), pairs[-1])

    def _down(self, project: str, user: str) -> list[ShareKey]:
        """The way from below the root to a user of a project."""
        return list(self._way(ShareKey(project or ROOT, user)))[-2::-1]

    def renew(self, now_ms: int, capacity: Callable[[], Amount]) -> list[ShareMove]:
        """Renew the steps of what has started or ended work, and each minute of all. Returns whose
        jobs have another place.
        """
        moved, self.undone = self.undone, []
        if not self.enabled:
            return moved
        is_whole = now_ms // RENEW_MS != self._renewed_ms // RENEW_MS
        if is_whole:
            self._renewed_ms = now_ms
            self._capacity = counted_of(capacity())
            self._forget(now_ms)
            touched = dict.fromkeys(self._nodes)
        else:
            touched = dict.fromkeys(one for key in self._touched for one in self._way(key))
        has_deeper = self._renew(touched, now_ms)
        users = self._nodes if is_whole or has_deeper else touched | self._fresh
        for key in users:
            steps = self._steps(key)
            if key.user and (steps != self._nodes[key].steps or key in self._fresh):
                self._nodes[key].steps = steps
                moved.append(ShareMove(key, steps, tuple(self._waiting.get(key, ()))))
        self._touched.clear()
        self._fresh.clear()
        return moved

    def _renew(self, touched: Iterable[ShareKey], now_ms: int) -> bool:
        """Returns whether a project has another step, so that all below it have."""
        for key in touched:
            node = self._nodes[key]
            use = self._use(node, now_ms)
            if key != _TOP and self._is_active(key):
                self._sums[key.above][0] += use - node.use
            node.use = use
        has_deeper = False
        for key in touched:
            node = self._nodes[key]
            step = next_step(node.step, self.share(key)) if key != _TOP else 0
            has_deeper |= step != node.step and not key.user
            node.step = step
        return has_deeper

    def share(self, key: ShareKey) -> float:
        """Its part of the use of its siblings with work, over its part of their weights, as of when
        its step was renewed; 0 when none of them has used anything.
        """
        if key == _TOP:
            return 1.0
        mine, use, weight = self._among(key)
        return mine * weight / (use * self._weight(key)) if use else 0.0

    def parts(self, key: ShareKey) -> tuple[float, float]:
        """The two of which the share is the quotient: its part of the use, and of the weights."""
        if key == _TOP:
            return 1.0, 1.0
        mine, use, weight = self._among(key)
        return mine / use if use else 0.0, self._weight(key) / weight

    def _among(self, key: ShareKey) -> tuple[int, int, int]:
        """Its use, and the use and the weight of its siblings with work; it is one of them in any
        case.
        """
        use, weight = self._sums.get(key.above, (0, 0))
        node = self._nodes.get(key)
        mine = node.use if node is not None else 0
        if node is None or not self._is_active(key):
            use, weight = use + mine, weight + self._weight(key)
        return mine, use, weight

    def _steps(self, key: ShareKey) -> int:
        return packed_steps(map(self.step, self._down(*key)))

    def weight(self, key: ShareKey) -> float:
        """What was set of a project; 1 of others, and of users."""
        return 1.0 if key.user else self.weights.get(key.path, 1.0)

    def _weight(self, key: ShareKey) -> int:
        return max(1, round(self.weight(key) * _WHOLE))

    # ── use ───────────────────────────────────────────────────────────────────────────────────────

    def _use(self, node: ShareNode, now_ms: int) -> int:
        """What runs counts as if it had run until the next renewal, so that it counts at once."""
        seconds = RENEW_MS / 1000
        parts = zip(self._used(node, now_ms), node.held, self._capacity, strict=True)
        use = max((used + held * seconds) / most if most else 0.0 for used, held, most in parts)
        return round(use * _USE)

    def _used(self, node: ShareNode, now_ms: int) -> list[float]:
        """What it has used until a time."""
        kept, added_s = _decayed(max(now_ms - node.at_ms, 0), self._half_life_ms)
        return [
            used * kept + held * added_s for used, held in zip(node.used, node.held, strict=True)
        ]

    def used_s(self, key: ShareKey, now_ms: int) -> float:
        """Its use, without what would be until the next renewal: seconds of the whole cluster."""
        node = self._nodes.get(key)
        return self._largest(self._used(node, now_ms)) if node is not None else 0.0

    def running(self, key: ShareKey) -> float:
        """The part of the cluster that it holds."""
        node = self._nodes.get(key)
        return self._largest(node.held) if node is not None else 0.0

    def _largest(self, amounts: Iterable[float]) -> float:
        parts = zip(amounts, self._capacity, strict=True)
        return max(amount / most if most else 0.0 for amount, most in parts)

    def _forget(self, now_ms: int) -> None:
        """Drop what has had no work for so long that nothing is left of it."""
        before_ms = now_ms - FORGOTTEN * self._half_life_ms
        gone = [
            key
            for key, node in self._nodes.items()
            if node.at_ms < before_ms and not self._is_active(key)
        ]
        for key in gone:
            del self._nodes[key]
            if key.user:
                users = self._users[key.path]
                users.discard(key.user)
                if not users:
                    del self._users[key.path]
            self._fresh.pop(key, None)
            self._waiting.pop(key, None)

    # ── records ───────────────────────────────────────────────────────────────────────────────────

    def users(self, path: str) -> list[str]:
        """The users who have work right in a project, or had some of late, by name."""
        return sorted(self._users.get(path, ()))

    def step(self, key: ShareKey) -> int:
        """Its own step."""
        node = self._nodes.get(key)
        return node.step if node is not None else 0 if key == _TOP else LEAST_STEP

    def stored(self) -> StoredShares | None:
        """For a snapshot; None while it is off."""
        if not self.enabled:
            return None
        return StoredShares(list(self._nodes.values()), self._capacity, self._renewed_ms)

    def restore(self, stored: StoredShares, waiting: Iterable[tuple[str, str, int, int]]) -> None:
        """Take what a snapshot has. ``waiting``: project, user, job and its pending tasks."""
        self._clear()
        self.enabled = True
        self._nodes = {ShareKey(node.path, node.user): node for node in stored.nodes}
        for path, user in self._nodes:
            if user:
                self._users.setdefault(path, set()).add(user)
        self._capacity, self._renewed_ms = stored.capacity, stored.renewed_ms
        for project, user, job, tasks in waiting:
            key = ShareKey(project or ROOT, user)
            self._waiting.setdefault(key, {})[job] = tasks
            self.pending.update(dict.fromkeys(self._way(key), tasks))
        self._sum()

    def _sum(self) -> None:
        """Sum use and weight of the siblings with work anew."""
        self._sums.clear()
        for key in self._nodes:
            self._follow(key, was_active=False)

    def counted(self) -> dict[tuple[str, str], tuple[int, list[int], int]]:
        """Of each user of a project with work: attempts, what they hold, and waiting tasks."""
        return {
            (key.path, key.user): (
                node.running,
                node.held,
                self.pending.get(key, 0),
            )
            for key, node in self._nodes.items()
            if key.user and self._is_active(key)
        }

    def picture(self) -> dict[str, object]:
        """Everything that replay and a snapshot bring back."""
        return {
            "nodes": {key: msgspec.to_builtins(node) for key, node in self._nodes.items()},
            "waiting": {key: dict(jobs) for key, jobs in self._waiting.items() if jobs},
            "pending": dict(self.pending),
            "sums": {key: sums for key, sums in self._sums.items() if any(sums)},
            "capacity": (self._capacity, self._renewed_ms),
        }

    def _is_active(self, key: ShareKey) -> bool:
        return bool(self.pending.get(key) or self._nodes[key].running)

    def _way(self, key: ShareKey) -> Iterator[ShareKey]:
        """A user of a project, the project, and those above it; the root last."""
        if key.user:
            yield key
        for path in upwards(key.path):
            yield ShareKey(path, "")


def counted_of(amount: Amount) -> list[int]:
    """What counts of an amount: what quotas limit."""
    return [getattr(amount, resource.name) for _, resource in RUNNING_LIMITS]


def next_step(step: int, share: float) -> int:
    """The step of a share: the one before it, unless the share has left that by more than `MARGIN`."""
    lower, upper = step_of(share * (1 - MARGIN)), step_of(share * (1 + MARGIN))
    return lower if lower > step else min(step, upper)


def step_of(share: float) -> int:
    """The whole part of log2 of a share, within `LEAST_STEP` and `MOST_STEP`."""
    return min(max(math.frexp(share)[1] - 1, LEAST_STEP), MOST_STEP) if share > 0 else LEAST_STEP


@lru_cache(maxsize=1024)
def _decayed(ms: int, half_life_ms: int) -> tuple[float, float]:
    """What is left of 1 after a time, and the seconds that something has counted that was held all
    along. By a series, since powers are not rounded alike everywhere.
    """
    whole, rest = divmod(ms, half_life_ms)
    exponent = rest / half_life_ms * _LN2
    left = 1.0
    for term in range(_TERMS, 0, -1):
        left = 1.0 - exponent * left / term
    left = math.ldexp(left, -min(whole, 1000))
    return left, half_life_ms / 1000 / _LN2 * (1.0 - left)
