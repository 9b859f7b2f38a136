"""Runs at each start of Python: makes the services cost more, as VARIABLE says, for tests of the
guard.

Nothing of Iris is imported here: a module is changed when a service imports it.
"""

import importlib.abc
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_BEFORE_START: dict[str, Callable[[], object]] = {
    "calls": lambda: [os.stat("/") for _ in range(150)],
    "processes": lambda: subprocess.run(["/bin/true"], check=False),
    "cpu": lambda: sum(range(400_000)),
}


def before_start(module: ModuleType, work: Callable[[], object]) -> None:
    """A launcher does more before each start."""
    start = module.Runner.start

    def costly(self: Any, request: Any) -> Any:
        work()
        return start(self, request)

    module.Runner.start = costly


def new_sandboxes(module: ModuleType) -> None:
    """No sandbox serves a second attempt."""
    module._Namespaces.serves = lambda *_: False


def lone_stages(module: ModuleType) -> None:
    """A report waits for nothing."""
    assert module.Agent.awaits_more
    module.Agent.awaits_more = lambda _: False


def more_messages(module: ModuleType) -> None:
    """Each order is followed by messages that nobody reads."""
    on_order = module.WorkerService._on_order

    def talkative(self: Any, message: Any) -> None:
        for _ in range(256):
            self._bus.publish(f"iris.worker.{self.id}.heartbeat", b"")
        on_order(self, message)

    module.WorkerService._on_order = talkative


PLANTS: dict[str, tuple[str, Callable[[ModuleType], None]]] = {
    **{
        name: (
            "iris_worker.launcher.processes.runner",
            lambda module, work=work: before_start(module, work),
        )
        for name, work in _BEFORE_START.items()
    },
    "sandboxes": ("iris_worker.launcher.starts.sandbox", new_sandboxes),
    "commits": ("iris_worker.agent.agent", lone_stages),
    "messages": ("iris_worker.service.service", more_messages),
}


VARIABLE = "PYTHON_PLANT"
"""The name of a plant. Launchers inherit variables of Python, and none of Iris."""


class _Planter(importlib.abc.MetaPathFinder):
    """Changes one module after it has been executed."""

    def __init__(self, name: str, change: Callable[[ModuleType], None]) -> None:
        self._name, self._change = name, change

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            self._change(module)

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


if VARIABLE in os.environ:
    sys.meta_path.insert(0, _Planter(*PLANTS[os.environ[VARIABLE]]))
