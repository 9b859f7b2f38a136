"""The provider ``tpu``: a slice is a Cloud TPU, asked for by a queued resource or as a node.

Names are those of slices, so a name that somebody else has is refused. What is whose is in labels of
the node; the number in them tells two slices of one name apart. Nothing is kept that is needed: of
creations that are under way it remembers the operations, to tell why one failed. Source:
docs/design/fleet.md#cloud-tpu.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple, TypeVar

import msgspec

from iris_core.limits import clipped
from iris_core.messages.state_provisioner import FoundSlice, ProviderOptions, SliceOrder
from iris_core.placement.constraints import DEVICE_VARIANT
from iris_provisioner.providers.provider import CallAnswer, ListFailed
from iris_provisioner.providers.slot_keys import NoKey, SlotKeys
from iris_provisioner.providers.tpu_api import Operation, Status, TpuApi, TpuApiError, error_of
from iris_provisioner.providers.tpu_vm import VmSettings, metadata

SETTLE_S = 10.0
"""How long an operation is waited for, since most of what is refused is told by then."""
_LABEL_BYTES = 63


class _FailedData(msgspec.Struct, frozen=True):
    error: Status = Status()


class _State(msgspec.Struct, frozen=True, rename="camel"):
    """The state of a queued resource. ``state_initiator``: who has suspended it."""

    state: str = ""
    state_initiator: str = ""
    failed_data: _FailedData | None = None


class _TpuNode(msgspec.Struct, frozen=True, rename="camel"):
    """A node, as far as it is of interest; its metadata is not read."""

    name: str = ""
    state: str = ""
    labels: dict[str, str] = {}
    health_description: str = ""


class _NodeSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_id: str = ""
    node: _TpuNode = _TpuNode()


class _Tpu(msgspec.Struct, frozen=True, rename="camel"):
    node_spec: list[_NodeSpec] = []


class _Queued(msgspec.Struct, frozen=True, rename="camel"):
    """A queued resource. Its labels are those of the node that it asks for."""

    name: str = ""
    state: _State = _State()
    tpu: _Tpu = _Tpu()

    @property
    def labels(self) -> dict[str, str]:
        return self.tpu.node_spec[0].node.labels if self.tpu.node_spec else {}


class _QueuedPage(msgspec.Struct, frozen=True, rename="camel"):
    queued_resources: list[_Queued] = []
    next_page_token: str = ""
    unreachable: list[str] = []


class _NodePage(msgspec.Struct, frozen=True, rename="camel"):
    nodes: list[_TpuNode] = []
    next_page_token: str = ""
    unreachable: list[str] = []


T = TypeVar("T")


class _Begun(NamedTuple):
    """A creation whose operation was not done. ``label``: of the slice."""

    label: int
    operation: str


_QUEUED = {
    "CREATING": "creating",
    "ACCEPTED": "creating",
    "WAITING_FOR_RESOURCES": "creating",
    "PROVISIONING": "creating",
    "ACTIVE": "running",
    "FAILED": "failed",
    "SUSPENDING": "preempted",
    "SUSPENDED": "preempted",
    "DELETING": "deleting",
}
_NODE = {
    "CREATING": "creating",
    "STARTING": "creating",
    "PREEMPTED": "preempted",
    "TERMINATED": "preempted",
    "STOPPING": "failed",
    "STOPPED": "failed",
    "HIDING": "failed",
    "HIDDEN": "failed",
    "UNKNOWN": "failed",
    "DELETING": "deleting",
}
"""The others are being repaired, or run: their hosts tell more."""


class TpuProvider:
    """Cloud TPU below one address.

    Args:
        endpoint: the address of the API. cluster: whose slices these are. vm: what their workers
            are told.
    """

    def __init__(
        self, endpoint: str, keys: SlotKeys, cluster: str, vm: VmSettings, *, timeout_s: float
    ) -> None:
        self._api = TpuApi(endpoint, timeout_s=timeout_s)
        self._keys = keys
        self._cluster = label_value(cluster)
        self._vm = vm
        self._begun: dict[tuple[str, str], _Begun] = {}

    async def close(self) -> None:
        await self._api.close()

    # ── creation ──────────────────────────────────────────────────────────────────────────────────

    async def create(self, order: SliceOrder, epoch: int = 0) -> CallAnswer:
        try:
            node = self._node(order)
        except (NoKey, OSError) as error:
            return CallAnswer("failed", str(error))
        return await _Creation(self._api, order, self._cluster, node, self._begun).run()

    def _node(self, order: SliceOrder) -> dict[str, Any]:
        """The node of a slice. Raises NoKey, OSError."""
        options = order.options
        seeds = [self._keys.seed(host.name) for host in order.hosts]
        network = {
            "network": options.get("network"),
            "subnetwork": options.get("subnetwork"),
            "enableExternalIps": bool(options.get("external_ips", True)),
        }
        node: dict[str, Any] = {
            "acceleratorType": str(order.attributes.get(DEVICE_VARIANT, "")),
            "runtimeVersion": options.get("runtime_version"),
            "networkConfig": {key: value for key, value in network.items() if value is not None},
            "labels": {
                "iris-cluster": self._cluster,
                "iris-pool": order.pool,
                "iris-slice": order.slice,
                "iris-number": str(order.label),
            },
            "metadata": metadata(
                order.hosts,
                seeds,
                self._vm,
                version=str(options.get("iris_version", "")),
                wheels=str(options.get("wheels", "")),
            ),
        }
        if account := options.get("service_account"):
            node["serviceAccount"] = {"email": account}
        if order.capacity in ("spot", "reserved"):
            node["schedulingConfig"] = {order.capacity: True}
        return node

    # ── deletion ──────────────────────────────────────────────────────────────────────────────────

    async def delete(self, order: SliceOrder, epoch: int = 0) -> CallAnswer:
        """Delete a queued resource with its node, or a node that has none. It is never refused: that
        would say that there is nothing.
        """
        place = _place(order.options)
        request = f"{place}/queuedResources/{order.slice}"
        alone = f"{place}/nodes/{order.slice}"
        try:
            queued = await _found(self._api, request, _Queued)
            if queued is not None:
                if self._is(queued.labels, order) and queued.state.state != "DELETING":
                    await self._deleted(request, {"force": "true"})
            else:
                node = await _found(self._api, alone, _TpuNode)
                if node is not None and self._is(node.labels, order) and node.state != "DELETING":
                    await self._deleted(alone, {})
        except TpuApiError as error:
            return CallAnswer("failed", error.detail)
        begun = self._begun.get((place, order.slice))
        if begun is not None and begun.label == order.label:
            del self._begun[place, order.slice]
        return CallAnswer("accepted")

    async def _deleted(self, path: str, params: dict[str, str]) -> None:
        """Raises TpuApiError; what is not there has been deleted."""
        try:
            operation = await self._api.settled(await self._api.delete(path, params), SETTLE_S)
            if operation.error is not None:
                raise error_of(operation.error)
        except TpuApiError as error:
            if error.status != "NOT_FOUND":
                raise

    def _is(self, labels: dict[str, str], order: SliceOrder) -> bool:
        """Whether something is the slice that an order means."""
        ours = labels.get("iris-cluster") == self._cluster
        return ours and labels.get("iris-number") == str(order.label)

    # ── lists ─────────────────────────────────────────────────────────────────────────────────────

    async def listed(self, options: ProviderOptions) -> tuple[FoundSlice, ...]:
        api = self._api

        place = _place(options)
        try:
            queued = await api.pages(f"{place}/queuedResources", _QueuedPage)
            nodes = await api.pages(f"{place}/nodes", _NodePage)
            failed = await self._failures(api, place)
        except TpuApiError as error:
            raise ListFailed(error.detail) from None
        by_name = {_id(node.name): node for page in nodes for node in page.nodes}
        found = {one.name: one for one in failed}
        for name, node in by_name.items():
            self._take(found, name, node.labels, *_of_node(node))
        for page in queued:
            for one in page.queued_resources:
                name = _id(one.name)
                self._take(found, name, one.labels, *_of_queued(one, by_name.get(name)))
        return tuple(found.values())

    def _take(
        self,
        found: dict[str, FoundSlice],
        name: str,
        labels: dict[str, str],
        status: str,
        detail: str,
    ) -> None:
        """Take note of something that is of this cluster."""
        number = labels.get("iris-number", "")
        is_known = number.isascii() and number.isdigit() and len(number) <= 18
        if labels.get("iris-cluster") == self._cluster and is_known:
            found[name] = FoundSlice(name, int(number), status=status, detail=clipped(detail))

    async def _failures(self, api: TpuApi, place: str) -> list[FoundSlice]:
        """Slices whose creation has failed since it was accepted: only their operation knows."""
        failed = []
        for (where, name), begun in list(self._begun.items()):
            if where != place:
                continue
            try:
                operation = await api.get(begun.operation, Operation)
            except TpuApiError as error:
                if error.status != "NOT_FOUND":
                    raise
                operation = Operation(done=True)
            if operation.error is not None:
                words = error_of(operation.error).detail
                failed.append(FoundSlice(name, begun.label, status="failed", detail=words))
            elif operation.done:
                self._begun.pop((where, name), None)
        return failed


class _Creation:
    """One slice that is created, or is there already."""

    def __init__(
        self,
        api: TpuApi,
        order: SliceOrder,
        cluster: str,
        node: dict[str, Any],
        begun: dict[tuple[str, str], _Begun],
    ) -> None:
        self._api = api
        self._order = order
        self._cluster = cluster
        self._node = node
        self._begun = begun
        self._place = _place(order.options)
        self._is_queued = order.options.get("method", "queued") == "queued"

    async def run(self) -> CallAnswer:

        try:
            operation = await self._api.settled(await self._asked(), SETTLE_S)
            if operation.error is not None:
                raise error_of(operation.error)
            self._remember(operation)
            return CallAnswer("accepted")
        except TpuApiError as error:
            if error.status != "ALREADY_EXISTS":
                return error.as_answer()
        try:
            return await self._present()
        except TpuApiError as error:
            return error.as_answer()

    async def _asked(self) -> Operation:
        name = self._order.slice
        if not self._is_queued:
            return await self._api.create(f"{self._place}/nodes", {"nodeId": name}, self._node)
        spec = {"parent": self._place, "nodeId": name, "node": self._node}
        body: dict[str, Any] = {"tpu": {"nodeSpec": [spec]}}
        # A request that nobody waits for any more becomes no machine, whatever has happened here.
        waits = max(1, round(self._order.boot_timeout_s))
        body["queueingPolicy"] = {"validUntilDuration": f"{waits}s"}
        if self._order.capacity == "spot":
            body["spot"] = {}
        elif self._order.capacity == "reserved":
            body["guaranteed"] = {}
        if reservation := str(self._order.options.get("reservation", "")):
            is_whole = reservation.startswith("projects/")
            body["reservationName"] = (
                reservation if is_whole else f"{self._place}/reservations/{reservation}"
            )
        params = {"queuedResourceId": name}
        return await self._api.create(f"{self._place}/queuedResources", params, body)

    def _remember(self, operation: Operation) -> None:
        if operation.name and not operation.done:
            begun = _Begun(self._order.label, operation.name)
            self._begun[self._place, self._order.slice] = begun

    async def _present(self) -> CallAnswer:
        """The answer where something of the name is there."""
        name = self._order.slice
        error: Status | None = None
        if self._is_queued:
            queued = await _found(self._api, f"{self._place}/queuedResources/{name}", _Queued)
            labels = queued.labels if queued is not None else None
            state = queued.state.state if queued is not None else ""
            error = _error_of(queued) if queued is not None else None
        else:
            node = await _found(self._api, f"{self._place}/nodes/{name}", _TpuNode)
            labels = node.labels if node is not None else None
            state = node.state if node is not None else ""
        if labels is None:
            return CallAnswer("failed", f"{name} was there, and is not any more")
        if labels.get("iris-cluster") != self._cluster:
            return CallAnswer(
                "refused",
                f"{name} is there and is not of this cluster: delete it, or rename the pool",
            )
        number = labels.get("iris-number", "")
        if number != str(self._order.label):
            return CallAnswer("failed", f"{name} is there with number {number}")
        if state == "DELETING":
            return CallAnswer("failed", f"{name} is still being deleted")
        if error is not None:
            return error_of(error).as_answer()
        return CallAnswer("accepted")


async def _found(api: TpuApi, path: str, kind: type[T]) -> T | None:
    """A resource; None: it is not there. Raises TpuApiError."""
    try:
        return await api.get(path, kind)
    except TpuApiError as error:
        if error.status == "NOT_FOUND":
            return None
        raise


def _of_queued(one: _Queued, node: _TpuNode | None) -> tuple[str, str]:
    """The status of a queued resource and its node, and what there is to say about it."""
    state = one.state.state
    status = _QUEUED.get(state, "running")
    if state == "FAILED":
        error = _error_of(one)
        return status, error_of(error).detail if error is not None else state
    if status == "preempted" and one.state.state_initiator == "USER":
        return "failed", f"{state} by a user"
    if status == "running" and node is not None:
        return _of_node(node)
    return status, state


def _of_node(node: _TpuNode) -> tuple[str, str]:
    status = _NODE.get(node.state, "running")
    words = node.health_description
    return status, f"{node.state}: {words}" if words else node.state


def _error_of(one: _Queued) -> Status | None:
    """Why a queued resource has failed."""
    if one.state.state != "FAILED":
        return None
    data = one.state.failed_data
    return data.error if data is not None else Status(message="it has failed without a reason")


def _place(options: ProviderOptions) -> str:
    """The parent of everything that a pool makes."""
    return f"projects/{options.get('project', '')}/locations/{options.get('zone', '')}"


def _id(name: str) -> str:
    """The last part of the name of a resource."""
    return name.rpartition("/")[2]


def label_value(text: str) -> str:
    """A text as the value of a label, which has small letters, digits, - and _. Two texts that
    differ have values that differ.
    """
    value = re.sub("[^a-z0-9_-]", "-", text.lower())
    if value == text and len(text) <= _LABEL_BYTES:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{value[: _LABEL_BYTES - 9]}-{digest}"
