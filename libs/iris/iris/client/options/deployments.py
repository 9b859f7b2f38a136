"""Makes the bodies of ``POST`` and ``PATCH`` of ``/v1/deployments`` from the options of a caller.

Only given options are sent: omitted ones have their default in a new deployment and stay unchanged
in an update. Raises `InvalidOption` for texts that cannot be understood; what is understood but not
allowed is the gateway's to refuse. Source: docs/design/serving.md#probes,
docs/design/serving.md#update, docs/design/serving.md#scale.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from typing import Any, get_args

from iris.client.options.jobs import (
    CommandLine,
    OptionReader,
    read_amounts,
    read_command,
    read_constraints,
    read_device,
    read_environment,
    read_list,
    read_pairs,
    refuse,
)
from iris.client.options.units import parse_duration
from iris_core.admission.patches import merged
from iris_core.codec import to_builtins
from iris_core.spec.jobs import Environment, Probe
from iris_core.spec.option_table import (
    DeployOptions,
    OptionRow,
    TaskOptions,
    Time,
    deployment_field,
    rows_of,
)
from iris_core.spec.serving import UpdatePolicy

_ENVIRONMENT = Environment.__struct_fields__


def deployment_fields(
    command: CommandLine | None, options: DeployOptions, *, new: bool = False
) -> dict[str, Any]:
    """The given fields as a JSON merge patch, in which null removes a field. ``new``: the patch of
    nothing, which is a deployment that is created. Raises InvalidOption.
    """
    reading = OptionReader()
    parts = _parts(options, reading)
    template = _template(command, options, parts["probe"], reading)
    update = parts["update"]
    if new and "progress_deadline_s" in update:
        template["probe"] = {
            "start_timeout_s": _start_timeout_s(update),
            **template.get("probe", {}),
        }
    fields = {
        "template": template,
        "update": update,
        "scaling": parts["scaling"],
        "proxy": parts["proxy"],
        **parts[""],
    }
    if options.get("ports"):
        fields["port"] = options["ports"][0]
    if new:
        fields["user"] = options.get("user") or ""
    elif options.get("user"):
        words = "user: a deployment keeps its owner; leave it out, or create another deployment"
        reading.read(partial(refuse, words), None)
    reading.finish()
    said: dict[str, Any] = to_builtins(
        {name: value for name, value in fields.items() if value not in ({}, None)}
    )
    if options.get("no_scaling"):
        said["scaling"] = None
    return merged({}, said) if new else said


def _start_timeout_s(update: Mapping[str, Any]) -> float:
    """The start timeout of a route when only the update's deadline is given: it must be shorter."""
    ready_s: float = update.get("min_ready_s", UpdatePolicy().min_ready_s)
    deadline_s: float = update["progress_deadline_s"]
    return max(1.0, min(Probe().start_timeout_s, 0.9 * deadline_s - ready_s))


def _template(
    command: CommandLine | None,
    options: DeployOptions,
    probe: dict[str, Any],
    reading: OptionReader,
) -> dict[str, Any]:
    none: tuple[Any, int] = (None, 1)
    no_words: tuple[str, ...] = ()
    device, hosts = reading.read(lambda: read_device(options), none)
    if hosts > 1:
        reading.read(
            partial(refuse, f"a route is one task, and {options['tpu']} takes {hosts} hosts"), None
        )
    resources: dict[str, Any] = read_amounts(options, reading)
    fields = {
        **_given(options, "band", "bundle", "spread"),
        "env": read_pairs(options, "env", reading),
        "labels": read_pairs(options, "labels", reading),
        "ports": list(read_list(options, "ports", reading)),
        "resources": {**resources, "device": device} if device is not None else resources,
        "constraints": read_constraints(options, reading),
        "probe": _probe(options, probe, reading),
    }
    said = {name: value for name, value in fields.items() if value} | _environment(options)
    if command is not None:
        said["command"] = list(reading.read(lambda: read_command(command), no_words))
    return said


def _environment(options: DeployOptions) -> dict[str, Any]:
    """The environment that other code, setup or image needs; an update removes what it does not
    need.
    """
    if all(options.get(name) is None for name in ("bundle", "setup", "image")):
        return {"environment": {"python": options["python"]}} if options.get("python") else {}
    found = read_environment(options)
    return {
        "environment": None
        if found is None
        else {name: getattr(found, name) or None for name in _ENVIRONMENT}
    }


def _probe(options: DeployOptions, fields: dict[str, Any], reading: OptionReader) -> dict[str, Any]:
    """The given ``fields`` of a probe, with its kind and its port."""
    command = options.get("probe_command")
    kinds = {"http": options.get("probe_path"), "tcp": options.get("probe_tcp"), "command": command}
    wanted = [kind for kind, value in kinds.items() if value]
    if len(wanted) > 1:
        reading.read(
            partial(refuse, "a probe uses a path, TCP or a command: specify one of them"), None
        )
    if command:
        fields["command"] = shlex.split(command) if isinstance(command, str) else list(command)
    port = {"port": options["ports"][0]} if options.get("ports") else {}
    return {**({"kind": wanted[0]} if wanted else {}), **fields, **port}


def _parts(options: DeployOptions, reading: OptionReader) -> dict[str, dict[str, Any]]:
    """The given fields of the probe, the update, the scaling rule and the proxy, and under "" of
    the deployment.
    """
    parts: dict[str, dict[str, Any]] = {
        "": {},
        "probe": {},
        "update": {},
        "scaling": {},
        "proxy": {},
    }
    for row in rows_of(DeployOptions, TaskOptions):
        part, field = deployment_field(row)
        value: Any = options.get(row.name)
        if field and value is not None and row.name != "probe_tcp":
            parts[part][field] = _read(row, value, reading)
    if parts["scaling"] and options.get("no_scaling"):
        reading.read(partial(refuse, "a scaling rule is changed or removed, not both"), None)
    return parts


def _read(row: OptionRow, value: Any, reading: OptionReader) -> Any:
    if row.kind == Time:
        return reading.read(partial(parse_duration, str(value)), 0.0, row.name)
    return int(value) if int in get_args(row.kind) and str(value).isdigit() else value


def _given(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}
