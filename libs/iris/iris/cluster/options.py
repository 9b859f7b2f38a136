"""What the supervisor's process is told by the one that starts it, and what it answers."""

from __future__ import annotations

from typing import Any

import msgspec


class StartOptions(msgspec.Struct, frozen=True):
    """Where the data is, which `iris.toml` to read (empty: none), what the command line said of ``[cluster]``."""

    data: str
    config: str = ""
    given: dict[str, Any] = {}
