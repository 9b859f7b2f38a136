"""Cloud TPU's REST API, version 2, on loopback: what its published documents say of queued resources,
nodes, operations, errors and pages, and tokens of a service account.

It refuses what the documents do not have: unknown fields, fields that only it sets, labels with other
letters. Lists and answers repeat the metadata of nodes, as the API may.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol, Self

import jwt
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

PROJECT, ZONE = "my-project", "us-central2-b"
PLACE = f"projects/{PROJECT}/locations/{ZONE}"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
AUDIENCE = "https://oauth2.googleapis.com/token"
HTTP = {3: 400, 5: 404, 6: 409, 7: 403, 8: 429, 9: 400, 10: 409, 13: 500, 14: 503, 16: 401}
RPC = {
    3: "INVALID_ARGUMENT",
    5: "NOT_FOUND",
    6: "ALREADY_EXISTS",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    10: "ABORTED",
    13: "INTERNAL",
    14: "UNAVAILABLE",
    16: "UNAUTHENTICATED",
}
_ID = re.compile(r"[A-Za-z0-9_.~+%-]+")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_NODE: dict[str, Any] = {
    "description": str,
    "acceleratorType": str,
    "runtimeVersion": str,
    "networkConfig": {"network": str, "subnetwork": str, "enableExternalIps": bool},
    "serviceAccount": {"email": str, "scope": list},
    "schedulingConfig": {"preemptible": bool, "reserved": bool, "spot": bool},
    "labels": dict,
    "metadata": dict,
    "tags": list,
}
_QUEUED: dict[str, Any] = {
    "queueingPolicy": {"validUntilDuration": str, "validUntilTime": str},
    "reservationName": str,
    "spot": {},
    "guaranteed": {"minDuration": str},
    "tpu": {"nodeSpec": list},
}
_SPEC: dict[str, Any] = {"parent": str, "nodeId": str, "node": _NODE}


class Machines(Protocol):
    """What a node stands for."""

    def start(self, name: str, node: dict[str, Any]) -> None:
        """The VMs of a node boot."""

    def stop(self, name: str) -> None:
        """They are gone at once."""


class Refused(Exception):
    """An error that the API answers."""

    def __init__(
        self, code: int, message: str, details: list[dict[str, Any]] | None = None, http: int = 0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.http = http or HTTP[code]
        self.details = details or []

    @property
    def status(self) -> dict[str, Any]:
        return {"code": self.code, "message": str(self), "details": self.details}


@dataclass
class Fault:
    """What becomes of a call.

    Attributes:
        method, part: which calls: ``POST`` and a part of the path. error: what is answered; None:
            the connection is closed. takes_effect: the call is carried out first.
    """

    method: str
    part: str
    error: Refused | None = None
    takes_effect: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None


class CloudTpu:
    """One project.

    Attributes:
        queued, nodes: by name. operations: by name, with the answers left until they are done.
        calls: method and path of each call. faults: what becomes of the next calls that they fit;
            each is used once. failing: the errors of the next operations.
        capacity: nodes that there is room for. polls: how often an operation is asked for before it
            is done. page: entries of a page at most. is_automatic: each list moves all a step on.
        accepts: whether tokens are given. tokens: those that are valid.
    """

    def __init__(self, machines: Machines | None = None) -> None:
        self.machines = machines
        self.queued: dict[str, dict[str, Any]] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.operations: dict[str, list[Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.failing: list[Refused] = []
        self.capacity = 100
        self.polls = 0
        self.page = 2
        self.is_automatic = False
        self.accepts = True
        self.tokens: set[str] = set()
        self.given = 0
        self.url = ""
        self._key = _private_key()

    # ── what tests do ─────────────────────────────────────────────────────────────────────────────

    def credentials(self, directory: Path) -> Path:
        """The file of a service account whose tokens this server accepts."""
        path = directory / "account.json"
        key = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()
        path.write_text(
            json.dumps(
                {
                    "type": "service_account",
                    "project_id": PROJECT,
                    "private_key_id": "1",
                    "private_key": key,
                    "client_email": "iris@my-project.iam.gserviceaccount.com",
                    "token_uri": f"{self.url}/token",
                }
            )
        )
        return path

    def advance(self) -> None:
        """Everything goes a step on."""
        for name, one in list(self.queued.items()):
            state = one["state"]["state"]
            node = one["tpu"]["nodeSpec"][0]["node"]
            if state == "DELETING":
                self._drop_node(name)
                del self.queued[name]
            elif state in ("CREATING", "ACCEPTED"):
                one["state"] = {"state": "WAITING_FOR_RESOURCES"}
            elif state == "WAITING_FOR_RESOURCES" and len(self.nodes) < self.capacity:
                one["state"] = {"state": "PROVISIONING"}
                self._make_node(name, node, f"{PLACE}/queuedResources/{name}")
            elif state == "PROVISIONING":
                one["state"] = {"state": "ACTIVE"}
                self.nodes[name]["state"] = "READY"
            elif state == "SUSPENDING":
                one["state"] |= {"state": "SUSPENDED"}
                self._drop_node(name)
        for name, node in list(self.nodes.items()):
            if name not in self.queued and node["state"] == "CREATING":
                node["state"] = "READY"
            elif name not in self.queued and node["state"] == "DELETING":
                self._drop_node(name)

    def preempt(self, name: str) -> None:
        """Take a node away."""
        self.nodes[name]["state"] = "PREEMPTED"
        if self.machines is not None:
            self.machines.stop(name)
        if name in self.queued:
            self.queued[name]["state"] = {"state": "SUSPENDING", "stateInitiator": "SERVICE"}

    def metadata(self, name: str) -> dict[str, str]:
        """What the VMs of a slice were given."""
        if name in self.queued:
            found = self.queued[name]["tpu"]["nodeSpec"][0]["node"]["metadata"]
        else:
            found = self.nodes[name]["metadata"]
        assert isinstance(found, dict)
        return found

    # ── resources ─────────────────────────────────────────────────────────────────────────────────

    def _create_queued(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        _check(body, _QUEUED, "queuedResource")
        specs = body.get("tpu", {}).get("nodeSpec", [])
        for spec in specs:
            _check(spec, _SPEC, "nodeSpec")
            _check_node(spec.get("node", {}))
            if not spec.get("parent"):
                raise Refused(3, "nodeSpec.parent is required")
        if len(specs) != 1 or {"spot", "guaranteed"} <= body.keys():
            raise Refused(3, "one nodeSpec and one tier at most")
        if name in self.queued:
            raise Refused(6, f"Resource '{PLACE}/queuedResources/{name}' already exists")
        made = {**body, "name": f"{PLACE}/queuedResources/{name}", "state": {"state": "ACCEPTED"}}
        self.queued[name] = made
        return made

    def _create_node(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        _check_node(body)
        if name in self.nodes:
            raise Refused(6, f"Resource '{PLACE}/nodes/{name}' already exists")
        if len(self.nodes) >= self.capacity:
            self.failing.append(Refused(8, f'There is no more capacity in the zone "{ZONE}"'))
            return {}
        return self._make_node(name, body, "")

    def _make_node(self, name: str, node: dict[str, Any], queued: str) -> dict[str, Any]:
        made = {**node, "name": f"{PLACE}/nodes/{name}", "state": "CREATING"}
        if queued:
            made["queuedResource"] = queued
        self.nodes[name] = made
        if self.machines is not None:
            self.machines.start(name, made)
        return made

    def _drop_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None and self.machines is not None:
            self.machines.stop(name)

    def _delete_queued(self, name: str, force: bool) -> None:
        one = self.queued.get(name)
        if one is None:
            raise Refused(5, f"Resource '{PLACE}/queuedResources/{name}' was not found")
        state = one["state"]["state"]
        if state == "DELETING":
            raise Refused(10, "there is an operation for it under way")
        if not force and state not in ("ACCEPTED", "FAILED", "SUSPENDED"):
            raise Refused(9, f"it is {state}, and force is not set")
        one["state"] = {"state": "DELETING"}

    def _delete_node(self, name: str) -> None:
        if name not in self.nodes:
            raise Refused(5, f"Resource '{PLACE}/nodes/{name}' was not found")
        if self.nodes[name].get("queuedResource"):
            raise Refused(9, "it belongs to a queued resource")
        self.nodes[name]["state"] = "DELETING"

    def _operation(self, answer: dict[str, Any]) -> dict[str, Any]:
        name = f"{PLACE}/operations/operation-{len(self.operations)}"
        error = self.failing.pop(0) if self.failing else None
        self.operations[name] = [self.polls, error, answer]
        return self._shown(name)

    def _shown(self, name: str) -> dict[str, Any]:
        left, error, answer = self.operations[name]
        self.operations[name][0] = max(0, left - 1)
        if left:
            return {"name": name, "done": False}
        if error is not None:
            return {"name": name, "done": True, "error": error.status}
        return {"name": name, "done": True, "response": answer}

    # ── HTTP ──────────────────────────────────────────────────────────────────────────────────────

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        self.calls.append((request.method, request.path))
        fits = (f for f in self.faults if f.method == request.method and f.part in request.path)
        fault = next(fits, None)
        if fault is not None:
            self.faults.remove(fault)
            if fault.takes_effect:
                await self._refusable(request, self._api)
            if fault.body is not None:
                return web.Response(body=fault.body)
            if fault.error is None:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            return _error(fault.error, fault.headers)
        return await self._refusable(request, self._api)

    async def _refusable(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[dict[str, Any]]]
    ) -> web.StreamResponse:
        try:
            return web.json_response(await handler(request))
        except Refused as refused:
            return _error(refused, {})

    async def _api(self, request: web.Request) -> dict[str, Any]:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            raise Refused(16, "Request had invalid authentication credentials.")
        path = request.path.removeprefix("/v2/")
        if path in self.operations:
            return self._shown(path)
        place, _, rest = path.partition(f"/locations/{ZONE}/")
        if place != f"projects/{PROJECT}":
            raise Refused(7, f"Permission denied on '{path}'")
        kind, _, name = rest.partition("/")
        if kind not in ("queuedResources", "nodes"):
            raise Refused(5, f"Resource '{path}' was not found")
        there = self.queued if kind == "queuedResources" else self.nodes
        if request.method == "POST" and not name:
            return await self._post(request, kind)
        if request.method == "GET" and not name:
            return self._listed(request, kind, there)
        if request.method == "GET":
            if name not in there:
                raise Refused(5, f"Resource '{path}' was not found")
            return there[name]
        if request.method == "DELETE" and kind == "queuedResources":
            self._delete_queued(name, request.query.get("force") == "true")
            return self._operation({})
        if request.method == "DELETE":
            self._delete_node(name)
            return self._operation({})
        raise Refused(3, "there is no such method")

    async def _post(self, request: web.Request, kind: str) -> dict[str, Any]:
        name = request.query.get("queuedResourceId" if kind == "queuedResources" else "nodeId", "")
        if not _ID.fullmatch(name):
            raise Refused(3, f"{name!r} is no id")
        body = await request.json()
        make = self._create_queued if kind == "queuedResources" else self._create_node
        return self._operation(make(name, body))

    def _listed(
        self, request: web.Request, kind: str, there: dict[str, dict[str, Any]]
    ) -> dict[str, Any]:
        first = int(request.query.get("pageToken") or 0)
        if not first and kind == "queuedResources" and self.is_automatic:
            self.advance()
        size = min(self.page, int(request.query.get("pageSize") or self.page))
        names = sorted(there)
        answer: dict[str, Any] = {}
        if some := [there[name] for name in names[first : first + size]]:
            answer[kind] = some
        if first + size < len(names):
            answer["nextPageToken"] = str(first + size)
        return answer

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.calls.append(("POST", "/token"))
        if not self.accepts:
            words = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
            return web.json_response(words, status=400)
        claims = jwt.decode(
            str(form["assertion"]),
            self._key.public_key(),
            algorithms=["RS256"],
            audience=AUDIENCE,
        )
        assert claims["scope"] == SCOPE
        self.given += 1
        token = f"token-{self.given}"
        self.tokens = {token}
        return web.json_response(
            {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}
        )

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=8 << 20)
        app.router.add_post("/token", self._token)
        app.router.add_route("*", "/v2/{rest:.*}", self._answered)
        self._runner = web.AppRunner(app, shutdown_timeout=0, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @contextmanager
    def beside(self) -> Iterator[Self]:
        """Serve from a thread of its own."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.__aenter__(), loop).result(30)
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self.__aexit__(), loop).result(30)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


@cache
def _private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _error(refused: Refused, headers: dict[str, str]) -> web.Response:
    error = {
        "code": refused.http,
        "message": str(refused),
        "status": RPC[refused.code],
        "details": refused.details,
    }
    return web.json_response({"error": error}, status=refused.http, headers=headers)


def _check(value: dict[str, Any], form: dict[str, Any], at: str) -> None:
    """Raises Refused for a field that is not in the documents, or is of another type."""
    for key, given in value.items():
        wanted = form.get(key)
        if wanted is None:
            raise Refused(3, f"Invalid JSON payload received. Unknown name \"{key}\" at '{at}'")
        if isinstance(wanted, dict):
            _check(given, wanted, f"{at}.{key}")
        elif not isinstance(given, wanted):
            raise Refused(3, f"Invalid value at '{at}.{key}'")


def _check_node(node: dict[str, Any]) -> None:
    _check(node, _NODE, "node")
    if not node.get("runtimeVersion") or not node.get("acceleratorType"):
        raise Refused(3, "runtimeVersion and acceleratorType are required")
    for key, value in node.get("labels", {}).items():
        if not (_LABEL.fullmatch(key) and _LABEL.fullmatch(value)):
            raise Refused(3, f"label {key}={value}")
    metadata = node.get("metadata", {})
    if any(not isinstance(value, str) or len(value) > 256 << 10 for value in metadata.values()):
        raise Refused(3, "metadata")
