"""Makes the body of ``PUT /v1/pools/{pool}``: from the options of a caller, or from a file.

A specification replaces what is there, so the options are merged into the present one. Raises
`InvalidOption` for what cannot be understood; what is understood but not allowed is the gateway's
to refuse. Source: docs/design/fleet.md#pools.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from iris.client.decode import from_json
from iris.client.options.constraints import parse_value
from iris.client.options.jobs import OptionReader, read_amounts, read_tpu, refuse
from iris.client.options.units import parse_duration, parse_gpu
from iris.client.problems import InvalidOption
from iris_core.codec import Undecodable, to_builtins
from iris_core.placement.constraints import DEVICE_TYPE, DEVICE_VARIANT
from iris_core.spec.option_table import PoolOptions, Time, field_of, pool_rows
from iris_core.spec.pools import POOL_NAME, PoolSpec, Reservation
from iris_core.spec.resources import AUTO

FIELDS = PoolSpec.__struct_fields__
SUFFIXES = (".toml", ".json")
"""Of files of pools; names of pools have no dots, so the two are told apart."""
_NO_RESERVATION = "none"
_WORDS = {"true": True, "false": False}


def pool_changes(options: PoolOptions) -> dict[str, Any]:
    """The given fields as a JSON merge patch, in which null removes a field. Raises InvalidOption
    with every mistake.
    """
    reading = OptionReader()
    fields: dict[str, Any] = {}
    for row in pool_rows():
        value: Any = options.get(row.name)
        field = field_of(PoolSpec, row.name)
        if value is None or not field or row.name in _READ:
            continue
        fields[field] = (
            reading.read(partial(parse_duration, str(value)), 0.0, row.name)
            if row.kind == Time
            else value
        )
    device = reading.read(partial(_device, options), dict[str, Any]())
    amounts: dict[str, Any] = {**device.pop("resources", {}), **read_amounts(options, reading)}
    attributes = {**device.pop("attributes", {}), **_values(options, "attributes", reading)}
    parts = {
        "resources": amounts,
        "attributes": attributes,
        "options": _values(options, "provider_options", reading),
    }
    if (reservation := options.get("reservation")) is not None:
        fields["reservation"] = reading.read(partial(read_reservation, reservation), None)
    found = {**device, **fields, **{name: value for name, value in parts.items() if value}}
    reading.read(partial(_finite, found), None)
    reading.finish()
    return found


_READ = frozenset({"attributes", "reservation"})
"""Fields that are read from the values of their options, below."""


def _device(options: PoolOptions) -> dict[str, Any]:
    """What a device says of a slice and of its hosts. Raises InvalidOption."""
    tpu = options.get("tpu")
    gpu = options.get("gpu")
    if tpu and gpu:
        raise InvalidOption("a host has gpus or a tpu, not both")
    hosts = None
    if tpu:
        device, hosts = read_tpu(tpu)
    elif gpu:
        device = parse_gpu(str(gpu))
    else:
        return {}
    if not isinstance(device.variant, str) or device.variant == AUTO:
        word = "tpu" if tpu else "gpu"
        raise InvalidOption(f"{word}: {tpu or gpu!r} is not one kind; a pool has hosts of one kind")
    found: dict[str, Any] = {
        "resources": {"chips": device.count},
        "attributes": {DEVICE_TYPE: device.kind, DEVICE_VARIANT: device.variant},
    }
    return found if hosts is None else {**found, "hosts": hosts}


def _values(options: PoolOptions, name: str, reading: OptionReader) -> dict[str, Any]:
    """An option that is a dictionary."""
    given: object = options.get(name) or {}
    if isinstance(given, Mapping):
        return dict(given)
    words = f"{name} is a dictionary, not {given!r}; write for example {name}={{'key': 'value'}}"
    return reading.read(partial(refuse, words), {})


def read_reservation(given: str | Reservation) -> dict[str, Any] | None:
    """``tpus-2026=256``; None for ``none``. Raises InvalidOption."""
    if isinstance(given, Reservation):
        found: dict[str, Any] = to_builtins(given)
        return found
    name, equals, chips = given.partition("=")
    if given == _NO_RESERVATION:
        return None
    if not name or not equals or not (chips.isascii() and chips.isdigit()):
        raise InvalidOption(
            f"reservation: {given!r} is not NAME=CHIPS; write for example tpus=256, or none"
        )
    return {"name": name, "chips": int(chips)}


def read_value(text: str) -> str | int | float | bool | None:
    """The value of ``KEY=VALUE``: a number, true or false, or a text, which quotes make of anything;
    None for nothing.
    """
    return _WORDS[text] if text in _WORDS else parse_value(text) if text else None


is_pool_name = re.compile(POOL_NAME).fullmatch


def is_pool_file(name: str) -> bool:
    """Whether ``iris pool set`` reads it as a file: it ends as one, or is ``-``, which is stdin."""
    return name == "-" or name.endswith(SUFFIXES)


def pool_from(data: bytes, name: str) -> dict[str, Any]:
    """The specification in a file called ``name``, TOML or JSON. Raises InvalidOption.

    What is no specification but the gateway's answer about a pool keeps the fields of one; see
    `shown_only`.
    """
    found = _toml(data, name) if name.endswith(".toml") else _json(data, name)
    if not isinstance(found, dict):
        raise InvalidOption(f"{name}: a pool is an object of its fields, not {_kind(found)}")
    if not isinstance(found.get("name"), str):
        raise InvalidOption(f"{name}: a pool has a name, a text")
    try:
        _finite(found)
    except InvalidOption as error:
        raise InvalidOption(
            "\n".join(f"{name}: {line}" for line in str(error).splitlines())
        ) from None
    return found


def _finite(fields: Mapping[str, Any]) -> None:
    """Refuse numbers that JSON does not have. Raises InvalidOption."""
    if odd := [key for key, value in _numbers(fields, "") if not math.isfinite(value)]:
        raise InvalidOption("\n".join(f"{key} is not a finite number" for key in odd))


def specified(found: Mapping[str, Any]) -> dict[str, Any]:
    """The specification in the gateway's answer about a pool."""
    return {key: value for key, value in found.items() if key in FIELDS and value is not None}


def shown_only(found: Mapping[str, Any], known: frozenset[str]) -> list[str]:
    """The members of the gateway's answer about a pool that are not of its specification; none
    where it is a specification. ``known``: the members of such an answer.
    """
    more = [key for key in found if key not in FIELDS]
    return more if "state" in more and "version" in more and known.issuperset(more) else []


def _toml(data: bytes, name: str) -> Any:
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise InvalidOption(f"{name}: not UTF-8: {error.reason} at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidOption(f"{name}: not TOML: {error}") from None


def _json(data: bytes, name: str) -> Any:
    try:
        return from_json(data, object)
    except Undecodable as error:
        raise InvalidOption(f"{name}: not JSON: {error}") from None


def _kind(value: object) -> str:
    return "a list" if isinstance(value, list) else "one value"


def _numbers(value: object, at: str) -> Iterator[tuple[str, float]]:
    """Each number that is no whole one, with the name of its field."""
    if isinstance(value, float):
        yield at, value
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, f"{at}.{key}" if at else str(key))
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from _numbers(item, f"{at}[{place}]")
