"""What `--pool` of `iris up` and ``[cluster] pools`` say, as specifications of pools.

``NAME:key=value,...`` is a pool of processes on this machine; anything that ends as a file of a
pool is read from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec

from iris.client.options.pools import is_pool_file, is_pool_name, pool_changes, pool_from
from iris.client.options.units import parse_duration
from iris.client.problems import InvalidOption
from iris_core.admission.pools import validate_pool
from iris_core.codec import Undecodable, from_builtins, from_json
from iris_core.placement.pools import host_name
from iris_core.spec.field_rules import between
from iris_core.spec.field_rules import mistakes as field_mistakes
from iris_core.spec.option_table import PoolOptions
from iris_core.spec.pools import MAX_HOSTS, PoolName, PoolSpec, SliceCount

_KEYS = ("max", "min", "buffer", "cpu", "memory", "hosts", "idle", "boot", "tpu")
_NUMBERS = ("max", "min", "buffer", "hosts")
_CPU = "1"
"""Processors of a host of a pool that says nothing of them."""
_EXAMPLE = "write for example cpu:max=8, or the path of a pool's file, pool.toml"


class _Slots(msgspec.Struct):
    """What the names of a pool's hosts follow from; the rest is of no interest here."""

    name: PoolName
    max: SliceCount
    hosts: Annotated[int, between(1, MAX_HOSTS)] = 1


def read_pools(texts: Sequence[str]) -> list[PoolSpec]:
    """The pools. Raises InvalidOption, for a file that cannot be read too."""
    found: list[PoolSpec] = []
    for text in texts:
        fields = _from_file(text) if is_pool_file(text) else _from_words(text)
        try:
            spec = from_builtins(fields, PoolSpec)
        except Undecodable as error:
            raise InvalidOption(f"--pool {text}: {error}") from None
        mistakes = validate_pool(spec, found)
        if spec.name in {one.name for one in found}:
            raise InvalidOption(f"--pool {text}: there are two pools {spec.name}")
        if mistakes:
            words = "; ".join(f"{one.pointer}: {one.message}" for one in mistakes)
            raise InvalidOption(f"--pool {text}: {words}")
        found.append(spec)
    return found


def slot_hosts(pools: Sequence[PoolSpec | _Slots]) -> list[str]:
    """The names of all hosts that these pools may have, which are the ids of their workers."""
    return [
        host_name(pool.name, slot, index)
        for pool in pools
        for slot in range(pool.max)
        for index in range(pool.hosts)
    ]


def slots_in(data: bytes, name: str) -> list[str]:
    """The names of all hosts that pools may have, of the listing of them as JSON. ``name``: of
    where it was read. Raises InvalidOption.
    """
    try:
        pools = from_json(data, list[_Slots])
    except Undecodable as error:
        raise InvalidOption(
            f"{name}: no pools as `iris pool ls -o json` prints them: {error}"
        ) from None
    for pool in pools:
        for mistake in field_mistakes(pool):
            raise InvalidOption(f"{name}: {pool.name[:80]!r}{mistake.pointer}: {mistake.message}")
    return slot_hosts(pools)


def _from_file(text: str) -> dict[str, Any]:
    if text == "-":
        raise InvalidOption(f"--pool -: a cluster reads no pool from its input; {_EXAMPLE}")
    try:
        data = Path(text).read_bytes()
    except OSError as error:
        words = f"--pool {text}: the file cannot be read: {error.strerror}"
        raise InvalidOption(words) from None
    return pool_from(data, text)


def _from_words(text: str) -> dict[str, Any]:
    name, _, rest = text.partition(":")
    if not is_pool_name(name):
        raise InvalidOption(f"--pool {text!r} is no pool; {_EXAMPLE}")
    given: dict[str, Any] = {"cpu": _CPU, "provider": "process"}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or key not in _KEYS:
            known = ", ".join(_KEYS)
            raise InvalidOption(f"--pool {text}: {part!r} is not KEY=VALUE with a key of {known}")
        if key in _NUMBERS:
            given[key] = _whole(text, key, value)
        elif key == "boot":
            given["provider_options"] = {"boot_s": parse_duration(value)}
        else:
            given[key] = value
    if "max" not in given:
        raise InvalidOption(f"--pool {text}: it says no max; {_EXAMPLE}")
    return {**pool_changes(cast(PoolOptions, given)), "name": name}


def _whole(text: str, key: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise InvalidOption(f"--pool {text}: {key}: {value!r} is not a number")
    return int(value)
