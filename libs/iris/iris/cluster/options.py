"""The options passed to the supervisor's process, and its reply."""

from __future__ import annotations

from typing import Any

import msgspec

from iris_core.spec.pools import PoolSpec


class StartOptions(msgspec.Struct, frozen=True):
    """The data directory, the `iris.toml` to read (empty: none), and the command line's values for
    ``[cluster]``.

    ``attached``: whoever has started it waits for its end, and reads its output.
    """

    data: str
    config: str = ""
    given: dict[str, Any] = {}
    attached: bool = False


class StartedCluster(msgspec.Struct, frozen=True):
    """What has been started: the gateway's address, and host and port of the proxy.

    ``workers``: how many. ``ready_s``: how long they may take. ``sandbox``: tasks are confined.
    ``auth``: the gateway wants tokens. ``token_file``: the one with the owner's; empty when none
    was made. ``warnings``: what the hosts declare beyond what the machine has. ``pools``: those to set.
    """

    url: str
    proxy: str
    workers: int
    ready_s: float
    sandbox: bool
    auth: bool
    token_file: str = ""
    warnings: list[str] = []
    pools: list[PoolSpec] = []
