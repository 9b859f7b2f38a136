"""The options that each provider takes, and the mistakes in those of a pool. Pure.

Source: docs/design/fleet.md#pools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from typing import NamedTuple

from iris_core.errors import Mistake
from iris_core.placement.constraints import DEVICE_TYPE, DEVICE_VARIANT
from iris_core.placement.pools import variant_of
from iris_core.placement.topology import topology_of
from iris_core.spec.field_rules import MAX_SECONDS
from iris_core.spec.pools import PoolSpec

PROCESS_NUMBERS: dict[str, int] = {
    "boot_s": MAX_SECONDS,
    "refusal_chance": 1,
    "boot_failure_chance": 1,
    "preemption_chance": 1,
    "preemption_after_s": MAX_SECONDS,
    "preemption_notice_s": MAX_SECONDS,
}
"""The options of the provider ``process`` that are numbers from 0 on, and the highest of each."""


class _TextOption(NamedTuple):
    """An option of the provider ``tpu`` that is text. ``form``: of the whole of it."""

    form: str
    hint: str
    is_wanted: bool = False


TPU_OPTIONS = {
    "project": _TextOption("[a-z][a-z0-9:.-]{0,62}", "the id of a project", is_wanted=True),
    "zone": _TextOption("[a-z]+-[a-z]+[0-9]+-[a-z]", "such as us-central2-b", is_wanted=True),
    "runtime_version": _TextOption(
        "[a-z0-9][a-z0-9.-]{0,62}", "such as tpu-ubuntu2204-base", is_wanted=True
    ),
    "method": _TextOption("queued|node", "queued, a queued resource, or node"),
    "network": _TextOption("[A-Za-z0-9][A-Za-z0-9/._-]{0,254}", "the name of a network"),
    "subnetwork": _TextOption("[A-Za-z0-9][A-Za-z0-9/._-]{0,254}", "the name of a subnetwork"),
    "service_account": _TextOption(r"[^@\s]{1,64}@[^@\s]{1,190}", "an e-mail address"),
    "reservation": _TextOption(
        "(projects/[^/]+/locations/[^/]+/reservations/)?[a-z0-9-]{1,63}",
        "the name of a reservation",
    ),
    "iris_version": _TextOption("[0-9][0-9A-Za-z.+]{0,62}", "a release, such as 0.1.0"),
    "wheels": _TextOption("/.{1,254}", "a directory of the image"),
}
TPU_SWITCHES = frozenset({"external_ips"})


def option_mistakes(pool: PoolSpec) -> Iterator[Mistake]:
    """The mistakes in what a pool tells its provider."""
    if pool.provider == "exec":
        yield from _of_exec(pool)
    if pool.provider == "process":
        yield from _unknown(pool, {*PROCESS_NUMBERS, "seed"})
        yield from _of_process(pool)
    if pool.provider == "tpu":
        yield from _unknown(pool, TPU_OPTIONS.keys() | TPU_SWITCHES)
        yield from _of_tpu(pool)
        yield from _variant_of_tpu(pool)


def program_mistakes(pool: PoolSpec, programs: Set[str] | None) -> Iterator[Mistake]:
    """The mistake in a program's name. ``programs``: those that the provisioner has; None: unknown."""
    name = pool.options.get("program")
    if pool.provider != "exec" or programs is None or not isinstance(name, str):
        return
    if name and name not in programs:
        yield Mistake(
            pointer="/options/program",
            code="unknown_program",
            message=f"the provisioner has no program {name[:80]!r}",
            hint=", ".join(sorted(programs)) or "a name of [provisioner] programs",
        )


def _unknown(pool: PoolSpec, known: frozenset[str] | set[str]) -> Iterator[Mistake]:
    for key in sorted(set(pool.options) - known):
        yield Mistake(
            pointer=f"/options/{key}",
            code="unknown_field",
            message=f"the provider {pool.provider} has no option {key[:80]!r}",
            hint=", ".join(sorted(known)),
        )


def _of_exec(pool: PoolSpec) -> Iterator[Mistake]:
    program = pool.options.get("program", "")
    if not isinstance(program, str) or not program:
        yield Mistake(
            pointer="/options/program",
            code="bad_value" if program else "missing",
            message="the provider exec wants the name of a program",
            hint="a name of [provisioner] programs",
        )


def _of_process(pool: PoolSpec) -> Iterator[Mistake]:
    for name, highest in PROCESS_NUMBERS.items():
        value = pool.options.get(name, 0)
        if isinstance(value, str | bool) or not 0 <= value <= highest:
            yield Mistake(
                pointer=f"/options/{name}",
                code="bad_value",
                message=f"{name} {str(value)[:80]!r} is no number from 0 to {highest}",
                hint=f"a number from 0 to {highest}",
            )


def _of_tpu(pool: PoolSpec) -> Iterator[Mistake]:
    for name, option in TPU_OPTIONS.items():
        value = pool.options.get(name)
        if value is None and option.is_wanted:
            yield Mistake(
                pointer=f"/options/{name}",
                code="missing",
                message=f"the provider tpu wants the option {name}",
                hint=option.hint,
            )
        elif value is not None and not _has_form(value, option.form):
            yield Mistake(
                pointer=f"/options/{name}",
                code="bad_value",
                message=f"{name} {str(value)[:80]!r} is not {option.hint}",
                hint=option.hint,
            )
    for name in sorted(TPU_SWITCHES):
        if not isinstance(pool.options.get(name, False), bool):
            yield Mistake(
                pointer=f"/options/{name}",
                code="bad_value",
                message=f"{name} is true or false",
                hint="true, false",
            )
    if "reservation" in pool.options and pool.capacity != "reserved":
        yield Mistake(
            pointer="/options/reservation",
            code="conflict",
            message=f"a pool of capacity {pool.capacity} takes nothing of a reservation",
            hint="set capacity to reserved",
        )


def _has_form(value: object, form: str) -> bool:
    return isinstance(value, str) and re.fullmatch(form, value) is not None


def _variant_of_tpu(pool: PoolSpec) -> Iterator[Mistake]:
    """The variant is the accelerator type that is asked for."""
    if pool.attributes.get(DEVICE_TYPE) != "tpu":
        yield Mistake(
            pointer=f"/attributes/{DEVICE_TYPE}",
            code="bad_value" if DEVICE_TYPE in pool.attributes else "missing",
            message="the provider tpu makes hosts with TPUs",
            hint="tpu",
        )
    if topology_of(variant_of(pool)) is None:
        yield Mistake(
            pointer=f"/attributes/{DEVICE_VARIANT}",
            code="unknown_variant" if variant_of(pool) else "missing",
            message=f"{variant_of(pool)[:80]!r} is no TPU that is known"
            if variant_of(pool)
            else "the provider tpu wants the variant of its TPUs",
            hint="such as v5litepod-16",
        )
