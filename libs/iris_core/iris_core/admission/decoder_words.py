"""Puts the decoder's messages about values of the wrong shape into words for people. Pure."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

_PLACE = " - at `"
_LENGTH = re.compile(
    r"Expected `(?P<wanted>str|array|object)` of length (?P<bound>[<>]=) (?P<length>\d+)\Z"
)
_EXPECTED = re.compile(
    r"Expected `(?P<wanted>[^`]*)`(?P<bound> [<>]=? \S+)?(?:, got `(?P<got>[^`]*)`)?\Z"
)
WORDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
}
WORDS |= {"array": "a list", "object": "an object"}
_PARTS = {"str": "characters", "array": "items", "object": "members"}


def place_of(message: str) -> str:
    """The path of the value, with slashes: ``replicas``, ``env/A``; empty for the whole."""
    place = message.partition(_PLACE)[2].rstrip("`")
    return re.sub(r"[.\[\]]+", "/", place.removeprefix("key` in `").removeprefix("$")).strip("/")


def choices_hint(kind: Any, place: str = "") -> str:
    """``one of: hosts, none``: what an enumeration may be, at a path of `place_of` in a type; empty
    without one.
    """
    members = list(_members(kind))
    for name in filter(None, place.split("/")):
        found = (
            field for one in members if is_struct(one) for field in msgspec.structs.fields(one)
        )
        members = [
            one for field in found if field.encode_name == name for one in _members(field.type)
        ]
    choices = [choice for one in members for choice in _choices(one)]
    return f"one of: {', '.join(choices)}" if choices else ""


def with_choices(words: str, kind: Any, place: str) -> str:
    """A refusal of the value at a path, and behind it what an enumeration may be."""
    hint = choices_hint(kind, place)
    return f"{words} ({hint})" if hint else words


def _members(kind: Any) -> Iterator[Any]:
    """What a value may be, or its items."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin in (Annotated, list, tuple):
        yield from _members(arguments[0])
    elif origin in (Union, types.UnionType):
        for argument in arguments:
            yield from _members(argument)
    else:
        yield kind


def _choices(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(value) for value in get_args(kind)]
    return (
        [str(one.value) for one in kind]
        if isinstance(kind, type) and issubclass(kind, Enum)
        else []
    )


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def in_words(message: str) -> str:
    """``must be a whole number, not a string``, ``must be a number > 0``."""
    text = message.partition(_PLACE)[0]
    if match := _EXPECTED.match(text):
        wanted = " or ".join(
            WORDS.get(word.strip(), word.strip()) for word in match["wanted"].split("|")
        )
        got = match["got"] and f", not {WORDS.get(match['got'], match['got'])}"
        return f"must be {wanted}{match['bound'] or ''}{got or ''}"
    if match := _LENGTH.match(text):
        bound = "at most" if match["bound"] == "<=" else "at least"
        parts = _PARTS[match["wanted"]]
        return f"must be {WORDS[match['wanted']]} of {bound} {match['length']} {parts}"
    return (
        text.replace("Invalid enum value", "cannot be")
        if "enum" in text
        else text[:1].lower() + text[1:]
    )
