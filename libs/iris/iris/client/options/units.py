"""Parses amounts: ``4GiB``, ``0.5``, ``H100x8``, ``1h30m``.

Raises `InvalidOption`. Out of scope: allowed amounts (the gateway checks them).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import TypeVar

from iris.client.problems import InvalidOption
from iris_core import moments
from iris_core.spec.resources import AUTO, Device
from iris_core.units import BYTES, CORES, COUNT, Unit

T = TypeVar("T")

_POWERS = "kmgtpe"
_SIZE = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgtpe]?)(?P<kind>i?b?)\Z", re.IGNORECASE
)
_GPU = re.compile(
    r"(?P<variant>[A-Za-z][A-Za-z0-9._-]*?)(?:x(?P<count>\d{1,2}|(?<=[0-9A-Z]x)\d+))?\Z"
)
_NO_COUNT = re.compile(r"[0-9A-Z]x[-.0-9]*\Z")
"""The end of a variant that is meant for a count: of ``H100x-1``, and not of ``rtx4090``."""
LEAST_BARE = 1 << 20
"""A smaller number of bytes without a unit is taken for a missing unit."""


def parse_size(text: str) -> int:
    """Bytes. ``4GiB``, ``4Gi`` and ``4G`` are 4 x 2**30, ``4GB`` is 4 x 10**9, a bare number is
    bytes, 1 MiB at least.

    Fractions are rounded down to whole bytes. Raises InvalidOption.
    """
    match = _SIZE.match(text.strip())
    if not match:
        raise InvalidOption(f"{text!r} is not a size; write for example 512MiB or 4GiB")
    unit = match["unit"].lower()
    kind = match["kind"].lower()
    if not unit and kind.startswith("i"):
        raise InvalidOption(f"{text!r} is not a size; write for example 512MiB or 4GiB")
    step = 1000 if kind == "b" else 1024
    factor = step ** (_POWERS.index(unit) + 1) if unit else 1
    size = int(Decimal(match["number"]) * factor)
    if 0 < size < LEAST_BARE and not unit and not kind:
        raise InvalidOption(
            f"{text!r} would be {size} bytes; add the unit, for example {size}GiB, or {size}B if it is meant"
        )
    return size


def parse_cpu(text: str) -> int:
    """Millicores. ``0.5`` and ``500m`` are both 500;

    finer than a thousandth of a core is refused. Raises InvalidOption.
    """
    plain = text.strip()
    number, factor = (plain[:-1], 1) if plain.endswith("m") else (plain, 1000)
    try:
        millis = Decimal(number) * factor
    except InvalidOperation:
        raise InvalidOption(
            f"{text!r} is not a number of cores; write for example 0.5 or 8"
        ) from None
    if not millis.is_finite() or millis < 0 or millis != int(millis):
        raise InvalidOption(
            f"{text!r} cores cannot be asked for; write whole thousandths, for example 0.5 or 8"
        )
    return int(millis)


def parse_count(text: str) -> int:
    """A whole number. Raises InvalidOption."""
    plain = text.strip()
    if not (plain.isascii() and plain.isdigit()):
        raise InvalidOption(f"{text!r} is not a whole number; write for example 8")
    return int(plain)


PARSERS: dict[Unit, Callable[[str], int]] = {
    CORES: parse_cpu,
    BYTES: parse_size,
    COUNT: parse_count,
}


def parse_duration(text: str) -> float:
    """Seconds, as `iris_core.moments.parse_duration`. Raises InvalidOption."""
    try:
        return moments.parse_duration(text)
    except ValueError as error:
        raise InvalidOption(str(error)) from None


def parse_gpu(text: str) -> Device:
    """``H100x8`` is eight of one kind, ``H100x8,A100x8`` of either, ``8`` of whatever kind. Raises
    InvalidOption.
    """
    found = read_each(text.split(","), _parse_gpu)
    if len({device.count for device in found}) > 1:
        raise InvalidOption(
            f"{text!r}: alternatives are as many of each, for example H100x8,A100x8"
        )
    return Device(
        "gpu",
        one_or_more([variant for device in found for variant in device.variants]),
        found[0].count,
    )


def read_each(texts: Sequence[str], parse: Callable[[str], T]) -> list[T]:
    """What each text stands for. Raises InvalidOption with every mistake."""
    found: list[T] = []
    mistakes: list[str] = []
    for text in texts:
        try:
            found.append(parse(text))
        except InvalidOption as mistake:
            mistakes.append(str(mistake))
    if mistakes:
        raise InvalidOption("\n".join(mistakes))
    return found


def one_or_more(variants: Sequence[str]) -> str | tuple[str, ...]:
    """The variants of a device."""
    return variants[0] if len(variants) == 1 else tuple(variants)


def _parse_gpu(text: str) -> Device:
    plain = text.strip()
    if plain.isascii() and plain.isdigit() and int(plain) > 0:
        return Device("gpu", AUTO, int(plain))
    match = _GPU.match(plain)
    if (
        not match
        or _NO_COUNT.search(match["variant"])
        or (match["count"] and int(match["count"]) == 0)
    ):
        raise InvalidOption(f"{text!r} is not a gpu; write for example H100x8, H100 or 2")
    return Device("gpu", match["variant"], int(match["count"] or 1))
