"""The options passed to the supervisor's process, and its reply."""

from __future__ import annotations

from typing import Any

import msgspec


class StartOptions(msgspec.Struct, frozen=True):
    """The data directory, the `iris.toml` to read (empty: none), and the command line's values for ``[cluster]``."""

    data: str
    config: str = ""
    given: dict[str, Any] = {}
