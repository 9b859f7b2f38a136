"""One endpoint: its path, its documentation, and its handler.

Out of scope: the endpoints (`iris_gateway.api`) and the handling of every request
    (`iris_gateway.dispatch.middleware`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from iris_core.codec import to_json
from iris_core.messages.gateway_state import SUBJECT_OF, Answer, Caller, UserCommand
from iris_core.views.queries import ViewQuery
from iris_gateway.auth.bearer import refuse_worker
from iris_gateway.gateway import Gateway
from iris_gateway.http.parameters import (
    OF_USERS,
    OWNER,
    path_fields,
    read_owner,
    read_query,
    segment,
)
from iris_gateway.http.position import HEADER, NOTE_SCOPE, SCOPE, position_from
from iris_gateway.http.problem import ProblemResponse

S = TypeVar("S", bound=msgspec.Struct)

JSON = "application/json"
TEXT = "text/plain"
JSON_LINES = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"
BYTES = "application/octet-stream"
MAX_KEY = 255


@dataclass(frozen=True, slots=True)
class Call:
    """One request to an endpoint."""

    request: Request
    gateway: Gateway
    caller: Caller

    def segment(self, name: str) -> str:
        """A path parameter, percent-decoded."""
        return segment(self.request.path_params[name])

    def asked(self, kind: type[S]) -> S:
        """The path and the query as a struct; see `read_query`. Raises ProblemResponse."""
        query = self.request.query_params.multi_items()
        if self._names_work:
            query = [(name, text) for name, text in query if name != OWNER.name]
        path = path_fields(kind, self.request.path_params, self.of_user)
        return read_query(kind, query, path, self.gateway.now_ms())

    @property
    def of_user(self) -> str:
        """The owner that a request for a job or a task names, beside its name; empty: none. Raises
        ProblemResponse invalid.
        """
        return read_owner(self.request.query_params.getlist(OWNER.name)) if self._names_work else ""

    @property
    def _names_work(self) -> bool:
        """Whether the path names a job or a task."""
        return any(name in OF_USERS for name in self.request.path_params)

    @property
    def idempotency_key(self) -> str:
        """The ``Idempotency-Key`` header, or nothing. Raises ProblemResponse malformed."""
        key: str = self.request.headers.get("idempotency-key", "")
        if len(key) > MAX_KEY or not (key.isascii() and key.isprintable()):
            raise ProblemResponse(
                "malformed", f"an Idempotency-Key has at most {MAX_KEY} printable ASCII characters"
            )
        return key

    async def read(self, query: ViewQuery) -> bytes:
        """The JSON of one view, at least as new as the caller's position. Raises Problem."""
        known = position_from(self.request.headers.get(HEADER, ""))
        answer = await self.gateway.queries.read(query, self.caller, known)
        self._leave(answer)
        return answer.body

    async def command(self, command: UserCommand, *, key: str = "") -> Answer:
        """Send a person's command to the state service; see `Commands.ask`. Raises Problem."""
        refuse_worker(self.caller, type(command))
        answer = await self.gateway.commands.ask(SUBJECT_OF[type(command)], command, key=key)
        self._leave(answer)
        return answer

    def _leave(self, answer: Answer) -> None:
        """Keep what the headers of the response say of an answer."""
        self.request.scope[SCOPE] = answer.position
        self.add_note(answer.note)

    def add_note(self, note: str) -> None:
        """Say something beside the answer, in its header; an empty ``note`` says nothing."""
        if note:
            known = self.request.scope.get(NOTE_SCOPE)
            self.request.scope[NOTE_SCOPE] = f"{known}; {note}" if known else note

    def accepts(self, media_type: str) -> bool:
        """Whether the caller named this media type (``*/*`` names none)."""
        return media_type in self.request.headers.get("accept", "")


EndpointHandler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Answers:
    """One documented response: a msgspec type, or another media type."""

    description: str
    kind: Any = None
    media_types: tuple[str, ...] = (JSON,)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the route table.

    Attributes:
        path: with ``{parameters}`` of one segment each.
        public: answered without authentication. admin: for admins only. page: its refusals are HTML
            pages.
        task: a task's token may be used; the state service judges which jobs it reaches.
        parameters: the struct whose fields with a description are its query parameters; without
            one, it has none.
        body: the type of the JSON body, or a media type; None when there is none.
        problems: codes of its own refusals, besides those that `openapi.problem_codes` states for
            its kind.
    """

    method: str
    path: str
    handler: EndpointHandler
    summary: str
    answers: Mapping[int, Answers]
    parameters: type[msgspec.Struct] | None = None
    body: Any = None
    public: bool = False
    admin: bool = False
    problems: tuple[str, ...] = ()
    page: bool = False
    task: bool = False

    @property
    def takes_key(self) -> bool:
        """Whether it reads an ``Idempotency-Key``."""
        return self.method in ("POST", "PATCH", "DELETE") or "idempotency_mismatch" in self.problems


def needs_body(method: str, kind: type[msgspec.Struct]) -> bool:
    """Whether a request with a JSON body must send one: to replace something, or where a field has
    no default.
    """
    return method == "PUT" or any(field.required for field in msgspec.structs.fields(kind))


def json_response(body: Any, status: int = 200) -> Response:
    """A value of msgspec as JSON."""
    return Response(to_json(body), status, media_type=JSON)


def passed_on(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON of another service, unchanged."""
    return Response(body, status, headers, JSON)
