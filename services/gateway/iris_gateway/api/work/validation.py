"""Finds all mistakes in the shape of a JSON value, where the decoder reports only the first.

Generic over msgspec structs: the decoder itself checks each part, so exactly what it accepts is
    accepted here. Out of
scope: allowed values (`iris_core.admission.jobs`).
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from iris_core.admission.decoder_words import WORDS, choices_hint, in_words, is_struct
from iris_core.errors import Mistake, pointer_to
from iris_core.spec import field_rules

MAX_MISTAKES = 100
INT64 = range(-(2**63), 2**63)


def shape_mistakes(value: Any, kind: Any, pointer: str = "") -> list[Mistake]:
    """Everything in ``value`` (decoded JSON) that is not a ``kind``, outermost fields first; empty
    when it is one.
    """
    found = list(_mistakes(value, kind, pointer))
    return found[:MAX_MISTAKES]


def _mistakes(value: Any, kind: Any, pointer: str) -> Iterator[Mistake]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        if broken := field_rules.broken(value, kind):
            yield broken.mistake(value, pointer)
            return
        kind = _member_for(value, _bare(kind))
        inside = list(_inside(value, kind, pointer))
        yield from inside or [_leaf(str(error), pointer, kind)]


def _inside(value: Any, kind: Any, pointer: str) -> Iterator[Mistake]:
    """Mistakes in the parts of a container; none when ``value`` is not of the container's kind."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if is_struct(kind) and isinstance(value, dict):
        yield from _fields(value, kind, pointer)
    elif origin in (list, tuple) and isinstance(value, list):
        for number, item in enumerate(value):
            yield from _mistakes(item, arguments[0], f"{pointer}/{number}")
    elif origin is dict and isinstance(value, dict):
        for key, item in value.items():
            yield from _mistakes(item, arguments[1], pointer + pointer_to(key))


def _fields(value: dict[str, Any], kind: Any, pointer: str) -> Iterator[Mistake]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name, field in fields.items():
        if name in value:
            yield from _mistakes(value[name], field.type, f"{pointer}/{name}")
        elif field.required:
            yield Mistake(
                pointer=f"{pointer}/{name}",
                code="missing",
                message="is required",
                hint=_hint(field),
            )
    if kind.__struct_config__.forbid_unknown_fields:
        for name in sorted(value.keys() - fields.keys()):
            yield _unknown(name, list(fields), pointer)


def _unknown(name: str, known: list[str], pointer: str) -> Mistake:
    hint = "one of: " + ", ".join(known)
    return Mistake(
        pointer=pointer + pointer_to(name),
        code="unknown_field",
        message="is not a field",
        hint=hint,
    )


def _hint(field: FieldInfo) -> str:
    return _name_of(field.type)


def _bare(kind: Any) -> Any:
    """A type without its limits."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _name_of(kind: Any) -> str:
    kind = _bare(kind)
    if get_origin(kind) in (list, tuple):
        return f"a list of {getattr(_bare(get_args(kind)[0]), '__name__', 'values')}"
    return WORDS.get(getattr(kind, "__name__", ""), "a value")


def _member_for(value: Any, kind: Any) -> Any:
    """The member of a union that matches the kind of ``value``, so that its parts can be checked;
    else ``kind`` itself.
    """
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    for member in map(_bare, get_args(kind)):
        if isinstance(value, dict) and (is_struct(member) or get_origin(member) is dict):
            return member
        if isinstance(value, list) and get_origin(member) in (list, tuple):
            return member
    return kind


def _leaf(message: str, pointer: str, kind: Any) -> Mistake:
    code = "wrong_type" if ", got `" in message else "wrong_value"
    return Mistake(pointer=pointer, code=code, message=in_words(message), hint=choices_hint(kind))


def huge_integers(value: Any, pointer: str = "") -> list[Mistake]:
    """Integers that do not fit into 64 bits, which messages between services cannot hold."""
    return list(_huge(value, pointer))[:MAX_MISTAKES]


def _huge(value: Any, pointer: str) -> Iterator[Mistake]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _huge(item, pointer + pointer_to(key))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _huge(item, f"{pointer}/{number}")
    elif isinstance(value, int) and value not in INT64:
        yield Mistake(pointer=pointer, code="out_of_range", message="does not fit in 64 bits")
