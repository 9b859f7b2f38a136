"""Limits of the fields of specifications, each said once, in the field's type: for the check, for
the schema and for the words of a refusal. Pure.

A limit is metadata that the decoder does not enforce, so what was stored under other limits stays
readable. Out of
scope: rules between fields (`iris_core.admission.jobs`). Source:
    docs/adr/0061-one-struct-for-each-query.md#limits.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo

from iris_core.errors import Mistake, pointer_to
from iris_core.moments import show_duration
from iris_core.units import COUNT, Unit

MAX_SECONDS = 10 * 365 * 86_400


BASE64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}[A-Za-z0-9+/=]=)?"
"""The pattern of bytes in JSON, with which decoders agree."""


@dataclass(frozen=True, slots=True)
class FieldRule:
    """One limit.

    Attributes:
        holds: whether a value keeps to it. words: what is wrong with one that does not, for a
        person. code, hint: of the mistake. of_keys: it is about the keys of an object.
    """

    holds: Callable[[Any], object]
    words: Callable[[Any], str]
    code: str = "out_of_range"
    hint: str = ""
    of_keys: bool = False

    def mistake(self, value: Any, pointer: str) -> Mistake:
        """What is said of a value that breaks it."""
        return Mistake(pointer=pointer, code=self.code, message=self.words(value), hint=self.hint)


def _limit(rule: FieldRule, **schema: Any) -> Meta:
    return Meta(
        extra={"rule": rule},
        extra_json_schema={"propertyNames": schema} if rule.of_keys else schema,
    )


def _plain(number: float) -> str:
    return f"{number:.15g}"


def between(low: int, high: int, unit: Unit = COUNT) -> Meta:
    """A whole number, of a unit in which people write it."""
    words = f"is not between {unit.show(low)} and {unit.show(high)}{unit.word}"
    return _limit(
        FieldRule(lambda n: low <= n <= high, lambda n: f"{unit.show(n)} {words}"),
        minimum=low,
        maximum=high,
    )


def more_than_0(
    high: float, kind: str = "", show: Callable[[float], str] = _plain, hint: str = ""
) -> Meta:
    """A number, for example of the ``kind`` "a time of "."""
    limit = f" and at most {show(high)}" if math.isfinite(high) else ""
    rule = FieldRule(
        lambda n: math.isfinite(n) and 0 < n <= high,
        lambda n: f"{show(n)} is not {kind}more than 0{limit}",
        hint=hint,
    )
    return _limit(rule, exclusiveMinimum=0, **({"maximum": high} if limit else {}))


def at_least_0(high: float) -> Meta:
    """A number, for example a price."""
    rule = FieldRule(
        lambda n: math.isfinite(n) and 0 <= n <= high,
        lambda n: f"{_plain(n)} is not between 0 and {_plain(high)}",
    )
    return _limit(rule, minimum=0, maximum=high)


def duration(high: float = MAX_SECONDS, hint: str = "leave it out for never") -> Meta:
    """Seconds, more than 0."""
    return more_than_0(high, "a time of ", show_duration, hint)


def seconds(low: float, high: float = MAX_SECONDS) -> Meta:
    """Seconds, from ``low`` on."""
    words = f"is not a time between {show_duration(low)} and {show_duration(high)}"
    rule = FieldRule(
        lambda n: math.isfinite(n) and low <= n <= high, lambda n: f"{show_duration(n)} {words}"
    )
    return _limit(rule, minimum=low, maximum=high)


def text(
    pattern: str,
    code: str,
    words: str,
    hint: str = "",
    *,
    optional: bool = False,
    of_keys: bool = False,
) -> Meta:
    """A text that matches as a whole; ``words``: what another one "is not". ``optional``: it may be
    empty.
    """
    pattern = f"({pattern})?" if optional else pattern
    matches = re.compile(pattern).fullmatch
    rule = FieldRule(matches, lambda given: f"{given[:80]!r} {words}", code, hint, of_keys=of_keys)
    return _limit(rule, pattern=f"^({pattern})$")


def at_most(count: int, words: str, hint: str = "", *, of: str = "Items") -> Meta:
    """The length of a list, of an object (``of`` Properties) or of a text (Length); ``words``: ``at
    most 32 ports``.
    """
    code = "too_long" if of == "Length" else "too_many"
    return _limit(
        FieldRule(lambda given: len(given) <= count, lambda _: words, code, hint),
        **{f"max{of}": count},
    )


def filled(words: str) -> Meta:
    """A text that is not empty."""
    return _limit(FieldRule(lambda given: len(given) > 0, lambda _: words, "empty"), minLength=1)


def without_nul(words: str) -> Meta:
    """A text without NUL bytes."""
    return _limit(
        FieldRule(re.compile(r"[^\x00]*").fullmatch, lambda _: words, "nul_byte"),
        pattern=r"^[^\x00]*$",
    )


Kinds = type | tuple[type, ...]
_KINDS: dict[Any, Kinds] = {int: int, float: (int, float), str: str}


@dataclass(frozen=True, slots=True)
class _Node:
    """The limits of one type, each with the kinds of values it is about, and those of what such
    values hold.
    """

    rules: tuple[tuple[Kinds, FieldRule], ...]
    items: _Node | None
    is_deep: bool

    def __bool__(self) -> bool:
        return self.is_deep or bool(self.rules)


def mistakes(value: msgspec.Struct, pointer: str = "", but: tuple[str, ...] = ()) -> list[Mistake]:
    """What breaks a limit of a struct's fields, and of those in it; not of the fields ``but``
    these.
    """
    found: list[Mistake] = []
    for name, node, default in _fields(type(value)):
        given = getattr(value, name)
        if given is not default and given != default and name not in but:
            _find(given, node, f"{pointer}/{name}", found)
    return found


def broken(value: Any, hint: Any) -> FieldRule | None:
    """The limit of a type of numbers that a number breaks."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    numbers = (
        rule
        for kinds, rule in _node(hint).rules
        if kinds is not object and isinstance(value, kinds)
    )
    return next((rule for rule in numbers if not rule.holds(value)), None)


def _find(value: Any, node: _Node, pointer: str, found: list[Mistake]) -> None:
    """Add the mistakes of a value, and of what it holds, to those ``found``."""
    for kinds, rule in node.rules:
        if isinstance(value, kinds) and rule.of_keys:
            keys: list[Any] = list(value)  # type: ignore[call-overload]
            found += [
                rule.mistake(key, pointer + pointer_to(key)) for key in keys if not rule.holds(key)
            ]
        elif isinstance(value, kinds) and not rule.holds(value):
            found.append(rule.mistake(value, pointer))
    if isinstance(value, msgspec.Struct):
        found += mistakes(value, pointer)
    elif node.items is not None and isinstance(value, tuple | list | dict):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            for kinds, rule in node.items.rules:
                if isinstance(item, kinds) and not rule.holds(item):
                    break
            else:
                if not node.items.is_deep:
                    continue
            _find(item, node.items, pointer + pointer_to(key), found)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, _Node, Any], ...]:
    """The fields of a struct that have limits, or hold what has some, and their defaults, which
    keep to them.
    """
    hints = get_type_hints(kind, include_extras=True)
    found = (
        (field.name, _node(hints[field.name]), _default(field))
        for field in msgspec.structs.fields(kind)
    )
    return tuple(one for one in found if one[1])


def _default(field: FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _node(hint: Any) -> _Node:
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        inner = _node(arguments[0])
        kinds = _KINDS.get(arguments[0], object)
        own = tuple(
            (kinds, one.extra["rule"])
            for one in arguments[1:]
            if isinstance(one, Meta) and one.extra
        )
        return _Node(own + inner.rules, inner.items, inner.is_deep)
    if origin in (Union, types.UnionType):
        members = [_node(one) for one in arguments]
        items = next((one.items for one in members if one.items), None)
        return _Node(
            tuple(rule for one in members for rule in one.rules),
            items,
            any(one.is_deep for one in members),
        )
    if origin in (tuple, list, dict):
        items = _node(arguments[origin is dict])
        return _Node((), items or None, bool(items))
    return _Node((), None, isinstance(hint, type) and issubclass(hint, msgspec.Struct))
