"""Prints where a test hangs before its time limit ends it, and its process with it: a plugin of
pytest.

Not sooner: what reads the stack of a thread that computes may crash the process. The option of
pytest for this has one time for all tests, also for those with a limit of their own.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator

import pytest

SHARE = 0.8
"""Of the time limit of a test, after which it hangs."""


class Hangs:
    """Made when pytest is configured, since standard error is not captured then."""

    def __init__(self) -> None:
        self._stderr = os.dup(2)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        mark = item.get_closest_marker("timeout")
        limit_s = float(mark.args[0] if mark else item.config.getini("timeout"))
        faulthandler.dump_traceback_later(SHARE * limit_s, file=self._stderr)
        yield
        faulthandler.cancel_dump_traceback_later()
