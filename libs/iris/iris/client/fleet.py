"""The methods of `Client` about the fleet: pools, which admins set, and slices that are made of
them.

See also: `options.pools`, the options of a pool. Source: docs/design/fleet.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Unpack

from iris.client.http.api import GatewayApi
from iris.client.http.transport import UrlQuery, in_path
from iris.client.options.jobs import read_time
from iris.client.options.names import takes
from iris.client.options.pools import pool_changes, specified
from iris.client.problems import InvalidOption, NotFound
from iris_core.admission.patches import merged
from iris_core.codec import to_builtins
from iris_core.spec.option_table import PoolOptions
from iris_core.spec.pools import PoolSpec
from iris_core.views.fleet import FleetView, PoolChangeView, PoolPlanView, PoolView, SliceView


class FleetApi(GatewayApi):
    """Typed requests about pools and slices."""

    def pools(self) -> Iterator[PoolView]:
        """Every pool, by name."""
        return self.pages("/v1/pools", PoolView)

    def pool(self, pool: str) -> PoolView:
        """A pool by its name. Raises NotFound."""
        return self.get(f"/v1/pools/{in_path(pool)}", PoolView)

    @takes(PoolOptions)
    def set_pool(self, pool: str, **options: Unpack[PoolOptions]) -> PoolView:
        """Change the given options of a pool, or make the pool; options as in ``iris pool set``.

        Raises InvalidOption, Rejected, NotAllowed, Conflict when somebody else has changed it
        meanwhile, or for another provider while it has slices.
        """
        fields, version = self.changed_pool(pool, options)
        return self._put_pool(pool, fields, version)

    def replace_pool(
        self, spec: PoolSpec | Mapping[str, Any], *, version: int | None = None
    ) -> PoolView:
        """Replace the specification of the pool of its name, or make the pool.

        ``spec``: also as its JSON object. ``version``: of the pool as it was read; any by default.
        Raises as `set_pool`.
        """
        fields: Mapping[str, Any] = to_builtins(spec)
        if not isinstance(fields.get("name"), str):
            raise InvalidOption("a pool has a name, a text")
        return self._put_pool(fields["name"], fields, version)

    def plan_pool(self, spec: PoolSpec | Mapping[str, Any]) -> PoolPlanView:
        """A dry run: what a pool of this specification would do now; changes nothing. Raises
        Rejected.
        """
        return self.post("/v1/pools:plan", PoolPlanView, body=to_builtins(spec))

    def remove_pool(self, pool: str, *, drain: bool = False) -> bool:
        """Remove a pool. Raises Conflict while it has slices, unless with ``drain``: then idle ones
        go, what runs on others ends first, and the pool goes with the last. Returns whether it is
        gone. Raises NotFound, NotAllowed.
        """
        query: UrlQuery = {"drain": drain or None}
        found: dict[str, Any] = self.change(
            "DELETE", f"/v1/pools/{in_path(pool)}", dict, query=query
        )
        return not found.get("removing", False)

    def pause_pool(self, pool: str, *, reason: str = "") -> PoolView:
        """Let a pool neither grow nor shrink; what it has stays. Raises NotFound, NotAllowed."""
        return self.post(f"/v1/pools/{in_path(pool)}/pause", PoolView, body={"reason": reason})

    def resume_pool(self, pool: str, *, reason: str = "") -> PoolView:
        """Let a pool grow and shrink again, and forget what hindered it: refusals, delays, and that
        it was stopped. Raises NotFound, NotAllowed.
        """
        return self.post(f"/v1/pools/{in_path(pool)}/resume", PoolView, body={"reason": reason})

    def pool_history(self, pool: str) -> Iterator[PoolChangeView]:
        """What happened to the slices of a pool, newest first. Raises NotFound."""
        return self.pages(f"/v1/pools/{in_path(pool)}/history", PoolChangeView)

    def fleet(self) -> FleetView:
        """All pools together, and the waiting work for which no slice comes."""
        return self.get("/v1/fleet", FleetView)

    def fleet_slices(
        self, *, pool: str | None = None, status: str | None = None
    ) -> Iterator[SliceView]:
        """Slices of pools, newest first; without a ``status`` those that have not ended."""
        return self.pages("/v1/fleet/slices", SliceView, {"pool": pool, "status": status})

    def fleet_slice(self, slice_: str) -> SliceView:
        """A slice by its name, ``v5e-0``, which means the newest one, or by its id, ``s17``. Raises
        NotFound.
        """
        return self.get(f"/v1/fleet/slices/{in_path(slice_)}", SliceView)

    def drain_slice(
        self, slice_: str, *, deadline: float | str | None = None, reason: str = ""
    ) -> SliceView:
        """Give a slice back: it gets no new work, and is deleted when nothing runs there.

        ``deadline``: seconds, or a text like ``10m``, after which it is deleted whatever runs; None
        waits. Raises NotFound, NotAllowed, Conflict.
        """
        body = {"deadline_s": read_time(deadline, "deadline"), "reason": reason}
        return self.post(f"/v1/fleet/slices/{in_path(slice_)}/drain", SliceView, body=body)

    def changed_pool(self, pool: str, options: PoolOptions) -> tuple[dict[str, Any], int | None]:
        """The whole specification of a pool with these options, and the version that it is based
        on; None of a pool that is new. Raises InvalidOption.
        """
        changes = pool_changes(options)
        try:
            found: dict[str, Any] = self.get(f"/v1/pools/{in_path(pool)}", dict)
        except NotFound:
            found = {"name": pool}
        fields: dict[str, Any] = merged(specified(found), changes)
        return fields, found.get("version")

    def _put_pool(self, pool: str, fields: Mapping[str, Any], version: int | None) -> PoolView:
        return self.change(
            "PUT", f"/v1/pools/{in_path(pool)}", PoolView, body=fields, version=version
        )
