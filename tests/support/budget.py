"""What each file of tests costs in CPU, against `tests/budgets.toml`: a plugin of pytest.

A file that takes more than one and a half times its budget is named at the end, and fails the run
when `IRIS_BUDGETS` is `judge` (`make budgets`). CPU time grows when others use the machine, and
what waits then polls longer, so nothing is judged unless the machine was nearly idle but for the
tests. What a process that tests share has used counts in the file whose tests ran meanwhile; where
the kernel does not list children, it counts in the file after which it is reaped.
`.pytest_cache/v/iris/cpu_s` has the figures of the last run, from which budgets are taken.
"""

from __future__ import annotations

import contextlib
import os
import resource
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

BUDGETS = Path(__file__).resolve().parents[1] / "budgets.toml"
FACTOR = 1.5
UNBOUNDED = ("docker", "soak")
"""Marks of tests whose cost `make test` does not bear, or not always."""
MOST_OTHERS = 0.25
"""Of the machine's time, that others may have taken."""


def exceeded(used: Mapping[str, float], budgets: Mapping[str, float]) -> list[str]:
    """The files that passed their budget by half."""
    return [
        f"{file}: {seconds:.1f} s of CPU, and its budget is {budgets.get(file, budgets['default']):g} s"
        for file, seconds in sorted(used.items())
        if seconds > FACTOR * budgets.get(file, budgets["default"])
    ]


def own_s() -> float:
    """CPU time of this process, of all that it has started and waited for, and of those below it
    that run.
    """
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent) + below_s("self")


def below_s(process: str) -> float:
    """CPU time of the processes that one has started and not waited for, each with those that it
    has waited for.
    """
    found = 0.0
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it ends meanwhile
            for child in children.read_text().split():
                times = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:15]
                found += sum(map(int, times)) / os.sysconf("SC_CLK_TCK") + below_s(child)
    return found


def machine_s() -> tuple[float, float]:
    """CPU time of the machine since it started: in use, and in all; zeros where the kernel does not
    tell.
    """
    if not Path("/proc/stat").exists():
        return 0.0, 0.0
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    times = [int(word) / os.sysconf("SC_CLK_TCK") for word in words]
    return sum(times) - times[3] - times[4], sum(times)


def _account(item: pytest.Item | None) -> str:
    """The file that bears what a test uses; empty where none does."""
    if item is None or any(item.get_closest_marker(name) for name in UNBOUNDED):
        return ""
    return item.nodeid.split("::")[0]


class Budget:
    """Measures the tests of this process; in the one that started the others, judges what all have
    measured.
    """

    def __init__(
        self, config: pytest.Config, budgets: Path = BUDGETS, most_others: float = MOST_OTHERS
    ) -> None:
        self._config = config
        self._budgets = tomllib.loads(budgets.read_text())["cpu_s"]
        self._most_others = most_others
        self._used: Counter[str] = Counter()
        self._began = machine_s()
        self._spent_s: float | None = None
        """When the tests of another file began to run: looking costs as much as a small test."""
        self.wrong: list[str] = []

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        if self._spent_s is None:
            self._spent_s = own_s()
        yield
        if (account := _account(item)) == _account(nextitem):
            return
        before_s, self._spent_s = self._spent_s, own_s()
        if account:
            self._used[account] += max(
                self._spent_s - before_s, 0.0
            )  # less: some were left to others

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self._used.update(getattr(node, "workeroutput", {}).get("cpu_s", {}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["cpu_s"] = dict(self._used)
            return
        if (cache := getattr(self._config, "cache", None)) is not None and self._used:
            cache.set(
                "iris/cpu_s", {file: round(used, 1) for file, used in sorted(self._used.items())}
            )
        busy_s, all_s = (now - then for now, then in zip(machine_s(), self._began, strict=True))
        if all_s > 0 and (busy_s - sum(self._used.values())) / all_s <= self._most_others:
            self.wrong = exceeded(self._used, self._budgets)
        judges = os.environ.get("IRIS_BUDGETS") == "judge"
        if judges and self.wrong and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.wrong:
            terminalreporter.write_line(f"over budget: {line}", red=True)
