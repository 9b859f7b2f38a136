"""Puts the decoder's messages about values of the wrong shape into words for people. Pure."""

from __future__ import annotations

import re

_PLACE = " - at `"
_LENGTH = re.compile(r"Expected `(?P<wanted>str|array|object)` of length (?P<bound>[<>]=) (?P<length>\d+)\Z")
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]*)`(?P<bound> [<>]=? \S+)?(?:, got `(?P<got>[^`]*)`)?\Z")
WORDS = {"str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false", "null": "null"}
WORDS |= {"array": "a list", "object": "an object"}
_PARTS = {"str": "characters", "array": "items", "object": "members"}


def place_of(message: str) -> str:
    """The path of the value, with slashes: ``replicas``, ``env/A``; empty for the whole."""
    place = message.partition(_PLACE)[2].rstrip("`")
    return re.sub(r"[.\[\]]+", "/", place.removeprefix("key in ").removeprefix("$")).strip("/")


def in_words(message: str) -> str:
    """``must be a whole number, not a string``, ``must be a number > 0``."""
    text = message.partition(_PLACE)[0]
    if match := _EXPECTED.match(text):
        wanted = " or ".join(WORDS.get(word.strip(), word.strip()) for word in match["wanted"].split("|"))
        got = match["got"] and f", not {WORDS.get(match['got'], match['got'])}"
        return f"must be {wanted}{match['bound'] or ''}{got or ''}"
    if match := _LENGTH.match(text):
        bound, parts = "at most" if match["bound"] == "<=" else "at least", _PARTS[match["wanted"]]
        return f"must be {WORDS[match['wanted']]} of {bound} {match['length']} {parts}"
    return text[:1].lower() + text[1:]
