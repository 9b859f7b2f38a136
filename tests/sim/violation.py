"""How judges say that a promise was broken."""

from __future__ import annotations


class Violation(AssertionError):
    """A promise was broken."""


def expect(holds: bool, sentence: str) -> None:
    if not holds:
        raise Violation(sentence)
