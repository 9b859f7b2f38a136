"""Reads path segments and query parameters strictly, into structs; each mistake names its
parameter.

Out of scope: bodies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from iris_core.access.token_file import is_user_name
from iris_core.errors import Mistake, Refused
from iris_core.moments import parse_duration
from iris_core.names import JobName
from iris_gateway.http.problem import ProblemResponse, invalid

_JOB_ID = re.compile(r"j[1-9][0-9]{0,17}\Z")
_TASK_ID = re.compile(r"j[1-9][0-9]{0,17}/(?:0|[1-9][0-9]{0,4})\Z")
_WORD = re.compile(r"[^\x00-\x1f\x7f]{1,256}\Z")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_LONGEST_TIME = 40
_TRUTH = {"true": True, "1": True, "yes": True, "": True, "false": False, "0": False, "no": False}

_NUMBER = r"[0-9]{1,9}(\.[0-9]{1,9})?"
_PART = rf"{_NUMBER}(ms|s|m|h|d)"
_CLOCK = r"([0-9]{1,9}-)?[0-9]{1,9}(:[0-5][0-9]){2}"
_DURATION = rf"^({_NUMBER}|{_PART}( ?{_PART})*|{_CLOCK})$"
_SINCE: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "date"},
        {"type": "string", "pattern": _DURATION},
    ]
}

S = TypeVar("S", bound=msgspec.Struct)


def segment(raw: str) -> str:
    """A path segment, percent-decoded once. Raises ProblemResponse not_found when it is not
    UTF-8.
    """
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise ProblemResponse("not_found", "this path is not UTF-8") from None


def job_reference(text: str, user: str = "") -> str:
    """A job's id ``j<number>`` or its name, either with its owner if that is given:
    ``/train@ann``, or by ``user``.

    A name without its leading slash is a root job's. Raises ProblemResponse not_found.
    """
    text, owner = _parts(text, user, "job")
    if _JOB_ID.match(text):
        return text + owner
    try:
        name = JobName.from_string(text if text.startswith("/") else f"/{text}")
        if name.is_task:
            raise ProblemResponse("not_found", f"no such job: {text[:80]!r} is the name of a task")
        return str(JobName.job(str(name))) + owner
    except Refused as no:
        raise ProblemResponse("not_found", f"no such job: {no.detail}") from None


def task_reference(text: str, user: str = "") -> str:
    """A task's name, as of `job_reference`, or ``j<number>/<index>``. Raises ProblemResponse
    not_found.
    """
    text, owner = _parts(text, user, "task")
    if _TASK_ID.match(text):
        return text + owner
    try:
        name = JobName.from_string(text if text.startswith("/") else f"/{text}")
    except Refused as no:
        raise ProblemResponse("not_found", f"no such task: {no.detail}") from None
    if not name.is_task:
        raise ProblemResponse("not_found", f"no such task: {text[:80]!r} is the name of a job")
    return str(name) + owner


def _parts(text: str, user: str, what: str) -> tuple[str, str]:
    """A name or an id, and ``@ann`` of its owner, empty if none is given. Raises ProblemResponse
    not_found.
    """
    name, at, owner = text.partition("@")
    if user and at and owner != user:
        raise ProblemResponse("not_found", f"no such {what}: it is {text[:80]!r}, and user={user}")
    owner = owner or user
    if (at or user) and not is_user_name(owner):
        words = f"no such {what}: {owner[:80]!r} is not a user's name"
        first, slash, rest = owner.partition("/")
        instead = f"; the owner comes last: {name}/{rest}@{first}" if at and slash else ""
        raise ProblemResponse("not_found", words + instead[:160])
    return name, f"@{owner}" if owner else ""


def identifier(text: str, what: str) -> str:
    """A worker's, session's or user's id. Raises ProblemResponse not_found."""
    if not _WORD.match(text):
        raise ProblemResponse("not_found", f"no such {what}: {text[:80]!r}")
    return text


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter as it is read and documented: a field, its name in a query, and its JSON
    Schema.
    """

    field: str
    name: str
    description: str
    schema: Mapping[str, Any]


@cache
def query_parameters(kind: type[msgspec.Struct]) -> tuple[Parameter, ...]:
    """The fields of a struct that have a description. A time, whose name ends in ``_ms``, is given
    as text.
    """
    described = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
    return tuple(
        _parameter(field.name, dict(schema))
        for field in msgspec.structs.fields(kind)
        if "description" in (schema := _given(described[field.encode_name]))
    )


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an optional value when it is there."""
    return dict(schema["anyOf"][0]) if "anyOf" in schema else schema


def _parameter(field: str, schema: dict[str, Any]) -> Parameter:
    description = schema.pop("description")
    schema.get("items", {}).pop("description", None)
    if not schema.get("default", 0) and schema["type"] != "boolean":
        schema.pop("default", None)
    if schema["type"] == "string":
        schema.setdefault("minLength", 1)
    name = field.removesuffix("_ms")
    return Parameter(field, name, description, schema if name == field else _SINCE)


def read_query(
    kind: type[S],
    pairs: Iterable[tuple[str, str]],
    path: Mapping[str, str] | None = None,
    now_ms: int = 0,
) -> S:
    """The query of one request as a struct, beside the fields that its ``path`` names.

    Raises ProblemResponse invalid with every mistake, unknown parameters among them; not_found for
    what names no job.
    """
    values: dict[str, Any] = dict(path or {})
    given: dict[str, list[str]] = {}
    for name, text in pairs:
        given.setdefault(name, []).append(text)
    known = {one.name: one for one in query_parameters(kind) if one.field not in values}
    mistakes: list[Mistake] = []
    for name, texts in given.items():
        if name not in known:
            hint = "one of: " + ", ".join(sorted(known))
            mistakes.append(_wrong(name, "is not a parameter here", hint, "unknown_parameter"))
            continue
        value = _value(known[name], texts, now_ms)
        if isinstance(value, Mistake):
            mistakes.append(value)
        else:
            values[known[name].field] = value
    if mistakes:
        raise invalid(mistakes)
    return kind(**values)


def _wrong(name: str, message: str, hint: str = "", code: str = "wrong_value") -> Mistake:
    return Mistake(pointer=f"?{name}", code=code, message=message, hint=hint)


def _value(parameter: Parameter, texts: list[str], now_ms: int) -> Any:
    """What a parameter was given as, or the mistake in it."""
    name = parameter.name
    schema = parameter.schema
    if schema.get("type") == "array":
        texts = [word for text in texts for word in text.split(",")]
        items = Parameter(name, name, "", schema["items"])
        found = [_value(items, [text], now_ms) for text in texts]
        return next((one for one in found if isinstance(one, Mistake)), tuple(found))
    if len(texts) > 1:
        return _wrong(name, "is given more than once", code="repeated")
    text = texts[0]
    if schema is _SINCE:
        moment = _moment_ms(text, now_ms)
        hint = "a time such as 2026-01-31T08:00:00Z, a day such as 2026-01-31, or 10m"
        return moment if moment is not None else _wrong(name, f"cannot be {text[:80]!r}", hint)
    if schema["type"] == "boolean":
        return (
            _TRUTH[text]
            if text in _TRUTH
            else _wrong(name, f"cannot be {text[:80]!r}", "true or false")
        )
    if schema["type"] == "integer":
        return _number(name, text, schema)
    if not _fits(text, schema):
        return _wrong(name, f"cannot be {text[:80]!r}", _hint(text, schema))
    reference = _REFERENCES.get(name)
    return reference(text) if reference is not None else text


def _hint(text: str, schema: Mapping[str, Any]) -> str:
    """What may be given instead: the word with the most similar letters, and a sentence, all words,
    or an example.
    """
    choices = schema.get("enum", ())
    examples = schema.get("examples", ())
    meant = [f"did you mean {near}?" for near in get_close_matches(text[:80], choices, 1)]
    others = (
        f"one of: {', '.join(choices)}"
        if choices
        else f"such as {', '.join(examples)}"
        if examples
        else ""
    )
    return " ".join([*meant, schema.get("x-hint") or others]).strip()


def _number(name: str, text: str, schema: Mapping[str, Any]) -> int | Mistake:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        return _wrong(name, f"cannot be {text[:80]!r}")
    least = schema["minimum"]
    most = schema["maximum"]
    if least <= int(text) <= most:
        return int(text)
    return _wrong(name, f"must be {least} to {most}, not {int(text)}", code="out_of_range")


def _fits(text: str, schema: Mapping[str, Any]) -> bool:
    if "enum" in schema:
        return text in schema["enum"]
    pattern = schema.get("pattern", "").removesuffix("$")
    whole = pattern != schema.get("pattern", "")
    return (
        schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text))
        and re.search(rf"(?:{pattern})\Z" if whole else pattern, text) is not None
    )


def _moment_ms(text: str, now_ms: int) -> int | None:
    """A time: RFC 3339, a day of UTC, or a duration before now such as ``10m``, ``1h30m``, ``90`` or
    ``01:30:00``; None for another text.
    """
    if len(text) > _LONGEST_TIME:
        return None
    if re.match(_DURATION.removesuffix("$") + r"\Z", text):
        return now_ms - int(parse_duration(text) * 1000)
    try:
        moment = datetime.fromisoformat(f"{text}T00:00:00Z" if _DAY.match(text) else text)
    except ValueError:
        return None
    return int(moment.timestamp() * 1000) if moment.tzinfo is not None else None


_REFERENCES = {"parent": job_reference, "within": job_reference}
"""Query parameters that name a job."""


OWNER = Parameter(
    "user",
    "user",
    "The owner of the job. Without it a name is looked up among the caller's jobs, then among all.",
    {"type": "string", "minLength": 1, "maxLength": 128},
)
"""A parameter of every path that names a job or a task."""


def read_owner(texts: list[str]) -> str:
    """The owner that a request names; empty: none. Raises ProblemResponse invalid."""
    found = _value(OWNER, texts, 0) if texts else ""
    if isinstance(found, Mistake):
        raise invalid([found])
    return str(found)


def names_a_record(kind: type[msgspec.Struct] | None) -> bool:
    """Whether a query may name a job or a project, which there may not be."""
    named = {*_REFERENCES, "project"}
    return kind is not None and any(one.name in named for one in query_parameters(kind))


OF_USERS: dict[str, Callable[[str, str], str]] = {"job": job_reference, "task": task_reference}
"""The segments of paths that name a job or a task, to which ``user=`` adds the owner."""


def path_fields(
    kind: type[msgspec.Struct], raw: Mapping[str, str], user: str = ""
) -> dict[str, str]:
    """The fields that a path names, from its segments as they came. ``user``: the owner of the job
    or task. Raises ProblemResponse not_found.
    """
    return {
        name: OF_USERS[name](segment(text), user)
        if name in OF_USERS
        else identifier(segment(text), name)
        for name, text in raw.items()
        if name in kind.__struct_fields__
    }
