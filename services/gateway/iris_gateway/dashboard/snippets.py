"""How to submit a job again from a terminal or a program: its specification as ``iris run`` and as
Python. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from iris_core.admission.jobs import MASK
from iris_core.placement.constraints import TPU_NAME
from iris_core.placement.topology import topology_of
from iris_core.spec.jobs import Constraint, JobSpec
from iris_core.spec.option_table import JobOptions, field_of, rows_of
from iris_core.spec.resources import AUTO, REQUESTED, Device, ResourceRequest
from iris_core.states import ConstraintOp
from iris_core.units import BYTES, CORES, Unit

_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_FLAGS = {row.name: max(row.flags, key=len) for row in rows_of(JobOptions)} | {
    "env": "-e",
    "labels": "-l",
}
_SIGNS = {
    ConstraintOp.EQ: "=",
    ConstraintOp.NE: "!=",
    ConstraintOp.GT: ">",
    ConstraintOp.GE: ">=",
    ConstraintOp.LT: "<",
    ConstraintOp.LE: "<=",
}
_NARROW = 80


def options_of(spec: JobSpec) -> dict[str, Any]:
    """What differs from the defaults, by the names of the SDK's options; a secret's value stays
    `MASK`.
    """
    plain = ResourceRequest()
    options: dict[str, Any] = {"name": spec.name, "user": spec.user}
    for resource in REQUESTED:
        asked = getattr(spec.resources, resource.name)
        if asked != getattr(plain, resource.name):
            options[resource.word] = exact(resource.unit, asked)
    if limit := spec.resources.cpu_limit_millis:
        options["cpu_limit"] = exact(CORES, limit)
    hosts = 1
    if device := spec.resources.device:
        options[device.kind] = _device(device)
        known = topology_of(device.variants[0]) if device.kind == "tpu" else None
        hosts = known.vm_count if known is not None else 1
    slices = spec.coscheduling.slices if spec.coscheduling else 1
    is_plain = spec.replicas != hosts * slices and not (spec.array or spec.each_line)
    options["replicas"] = spec.replicas if is_plain else None
    if gang := spec.coscheduling:
        is_tpu = spec.resources.device is not None and spec.resources.device.kind == "tpu"
        is_implied = gang.group_by == TPU_NAME and (hosts > 1 or (is_tpu and slices > 1))
        options["group_by"] = None if is_implied else gang.words
        options["success"] = gang.success if gang.success != "all" else None
        options["slices"] = slices if slices > 1 else None
        options["within"] = gang.within
    options["constraints"] = [_condition(one) for one in spec.constraints if one.mode == "required"]
    options["prefer"] = [_condition(one) for one in spec.constraints if one.mode == "preferred"]
    options["on_exit"] = [f"{','.join(map(str, rule.codes))}={rule.do}" for rule in spec.on_exit]
    options["notify"] = [f"{rule.to}:{','.join(rule.on)}" for rule in spec.notify]
    if spec.stop is not None:
        options |= {"stop_signal": spec.stop.signal, "grace": _seconds(spec.stop.grace_s)}
    if spec.notice is not None:
        options["notice"] = f"{spec.notice.signal}@{_seconds(spec.notice.before_s)}"
    options["after"] = [
        one.job if one.when == "ok" else f"{one.job}:{one.when}" for one in spec.after
    ]
    options["each"] = any(one.each for one in spec.after) or None
    options["preload"] = list(spec.preload)
    options |= {name: value for name, value in _as_given(spec) if name not in options}
    if built := spec.environment:
        options |= {"setup": built.setup, "python": built.python, "image": built.image}
    options |= {"ports": list(spec.ports), "labels": dict(spec.labels), "env": dict(spec.env)}
    return {name: value for name, value in options.items() if value not in (None, "", [], {})}


def _as_given(spec: JobSpec) -> Iterator[tuple[str, Any]]:
    """The options that are fields of a specification, or times of one, where they differ from the
    defaults.
    """
    defaults = {field.name: field.default for field in msgspec.structs.fields(JobSpec)}
    for row in rows_of(JobOptions):
        field = field_of(JobSpec, row.name)
        if field and (value := getattr(spec, field)) != defaults[field]:
            yield row.name, value if field == row.name else _seconds(value)


def exact(unit: Unit, amount: int) -> str:
    """An amount as users write it, without rounding: ``0.5``, ``4GiB``, ``1000001B``."""
    if unit is CORES:
        return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
    if unit is BYTES:
        return next(
            (f"{amount // size}{word}" for word, size in _SIZES if amount % size == 0), f"{amount}B"
        )
    return str(amount)


def _device(device: Device) -> str:
    if device.kind == "tpu":
        return ",".join(device.variants)
    if device.variants == (AUTO,):
        return str(device.count)
    return ",".join(f"{variant}x{device.count}" for variant in device.variants)


def _condition(one: Constraint) -> str:
    if one.op is ConstraintOp.EXISTS:
        return one.key
    if one.op is ConstraintOp.NOT_EXISTS:
        return f"!{one.key}"
    if one.op is ConstraintOp.IN:
        return f"{one.key} in {','.join(map(_operand, one.values))}"
    return f"{one.key}{_SIGNS[one.op]}{_operand(one.value)}"


def _operand(value: object) -> str:
    """Text that looks like a number is quoted, for it would be taken for one."""
    if not isinstance(value, str):
        return str(value)
    return value if value[:1].isalpha() and value == value.rstrip() else f'"{value}"'


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.15g}s"


def cli_of(spec: JobSpec) -> str:
    """A command line for a shell; a secret is taken from that shell's environment."""
    words = ["iris", "run"]
    lines = [*(["--workdir", "."] for _ in (spec.bundle,) if spec.bundle)]
    for name, value in options_of(spec).items():
        flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
        if isinstance(value, dict):
            lines += [
                [flag, key if text == MASK else f"{key}={text}"] for key, text in value.items()
            ]
        else:
            values = value if isinstance(value, list) else [value]
            lines += [[flag] if one is True else [flag, str(one)] for one in values]
    lines.append(["--", *spec.command])
    parts = [shlex.join(words), *map(shlex.join, lines)]
    line = " ".join(parts)
    return line if len(line) <= _NARROW else " \\\n  ".join(parts)


def sdk_of(spec: JobSpec) -> str:
    """A Python program; a secret is taken from its environment."""
    options = options_of(spec)
    secret = [key for key, text in spec.env.items() if text == MASK]
    arguments = [f"{list(spec.command)!r}", *(['workdir="."'] if spec.bundle else [])]
    for name, value in options.items():
        if name == "env":
            pairs = (
                f"{k!r}: " + (f"os.environ[{k!r}]" if t == MASK else repr(t))
                for k, t in value.items()
            )
            arguments.append(f"env={{{', '.join(pairs)}}}")
        else:
            arguments.append(f"{name}={value!r}")
    body = "".join(f"        {argument},\n" for argument in arguments)
    imports = "import os\n\n" if secret else ""
    return f"{imports}from iris import Client\n\nwith Client() as client:\n    job = client.run(\n{body}    )\n"
