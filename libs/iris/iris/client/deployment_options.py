"""Makes the bodies of ``POST`` and ``PATCH`` of ``/v1/deployments`` from the options of a caller.

Only given options are sent: omitted ones have their default in a new deployment and stay unchanged in an update.
Raises `InvalidOption` for texts that cannot be understood; what is understood but not allowed is the gateway's to
refuse. Source: docs/design/serving.md#probes, docs/design/serving.md#update,
docs/design/serving.md#scale.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from iris.client.job_options import (
    CommandLine,
    OptionReader,
    TaskOptions,
    read_amounts,
    read_command,
    read_constraints,
    read_device,
    read_environment,
    read_list,
    read_pairs,
    refuse,
)
from iris.client.units import parse_duration
from iris_core.codec import to_builtins
from iris_core.serving import UpdatePolicy
from iris_core.spec import Environment, Probe

_ENVIRONMENT = Environment.__struct_fields__


class DeployOptions(TaskOptions, total=False):
    """The options of a deployment, each as in ``iris deploy create``; times are seconds or texts like ``10m``.

    ``ports``: the names of the ports of each route, the first is the one that serves.
    ``probe_command``: words, or one text that is split as a shell does. ``probe_tcp``: a probe by connecting.
    ``max_surge``, ``max_unavailable``: a number of routes, or a per cent like ``25%``.
    ``retry``: ``idempotent``, so that requests may be repeated on other routes, or ``never``.
    ``forward_authorization``: routes receive the field Authorization whatever it holds.
    ``min_replicas`` and what follows it: the scaling rule; ``no_scaling`` removes it.
    """

    replicas: int | None
    probe_path: str | None
    probe_ready_path: str | None
    probe_tcp: bool
    probe_command: str | Sequence[str] | None
    probe_interval: float | str | None
    probe_timeout: float | str | None
    probe_initial_delay: float | str | None
    probe_failures: int | None
    probe_passes: int | None
    probe_grace: float | str | None
    start_timeout: float | str | None
    max_surge: int | str | None
    max_unavailable: int | str | None
    min_ready: float | str | None
    progress_deadline: float | str | None
    pause_after: int | None
    rollback: bool | None
    settle: float | str | None
    grace: float | str | None
    retry: str | None
    forward_authorization: bool | None
    min_replicas: int | None
    max_replicas: int | None
    target_outstanding: float | None
    scale_query: str | None
    target_per_route: float | None
    stabilization: float | str | None
    cooldown: float | str | None
    scale_window: float | str | None
    panic_window: float | str | None
    no_scaling: bool


def deployment_fields(command: CommandLine | None, options: DeployOptions, *, new: bool = False) -> dict[str, Any]:
    """The given fields as JSON values. ``new``: of a deployment that is created. Raises InvalidOption."""
    reading = OptionReader()
    template, update = _template(command, options, reading), _update(options, reading)
    if new and "progress_deadline_s" in update:
        template["probe"] = {"start_timeout_s": _start_timeout_s(update), **template.get("probe", {})}
    fields = {
        **_given(options, "replicas"),
        "template": template,
        "update": update,
        "scaling": _scaling(options, reading),
        "proxy": _given(options, "retry", "forward_authorization"),
        **_seconds(options, reading, {"settle": "settle_s", "grace": "grace_s"}),
    }
    if options.get("ports"):
        fields["port"] = options["ports"][0]
    if new:
        fields["user"] = options.get("user") or ""
    reading.finish()
    said: dict[str, Any] = to_builtins({name: value for name, value in fields.items() if value not in ({}, None)})
    if options.get("no_scaling"):
        said["scaling"] = None
    return said


def _start_timeout_s(update: Mapping[str, Any]) -> float:
    """The start timeout of a route when only the update's deadline is given: it must be shorter."""
    ready_s: float = update.get("min_ready_s", UpdatePolicy().min_ready_s)
    deadline_s: float = update["progress_deadline_s"]
    return max(1.0, min(Probe().start_timeout_s, 0.9 * deadline_s - ready_s))


def _template(command: CommandLine | None, options: DeployOptions, reading: OptionReader) -> dict[str, Any]:
    none: tuple[Any, int] = (None, 1)
    no_words: tuple[str, ...] = ()
    device, hosts = reading.read(lambda: read_device(options), none)
    if hosts > 1:
        reading.read(partial(refuse, f"a route is one task, and {options['tpu']} takes {hosts} hosts"), None)
    resources: dict[str, Any] = read_amounts(options, reading)
    fields = {
        **_given(options, "band", "bundle", "spread"),
        "env": read_pairs(options, "env", reading),
        "labels": read_pairs(options, "labels", reading),
        "ports": list(read_list(options, "ports", reading)),
        "resources": {**resources, "device": device} if device is not None else resources,
        "constraints": read_constraints(options, reading),
        "probe": _probe(options, reading),
    }
    said = {name: value for name, value in fields.items() if value} | _environment(options)
    if command is not None:
        said["command"] = list(reading.read(lambda: read_command(command), no_words))
    return said


def _environment(options: DeployOptions) -> dict[str, Any]:
    """The environment that other code, setup or image needs; an update removes what it does not need."""
    if all(options.get(name) is None for name in ("bundle", "setup", "image")):
        return {"environment": {"python": options["python"]}} if options.get("python") else {}
    found = read_environment(options)
    return {"environment": None if found is None else {name: getattr(found, name) or None for name in _ENVIRONMENT}}


def _probe(options: DeployOptions, reading: OptionReader) -> dict[str, Any]:
    command = options.get("probe_command")
    kinds = {"http": options.get("probe_path"), "tcp": options.get("probe_tcp"), "command": command}
    wanted = [kind for kind, value in kinds.items() if value]
    if len(wanted) > 1:
        reading.read(partial(refuse, "a probe uses a path, TCP or a command: specify one of them"), None)
    fields: dict[str, Any] = {"kind": wanted[0]} if wanted else {}
    if command:
        fields["command"] = shlex.split(command) if isinstance(command, str) else list(command)
    if options.get("ports"):
        fields["port"] = options["ports"][0]
    words = {"probe_path": "path", "probe_ready_path": "ready_path", "probe_failures": "failures"}
    words["probe_passes"] = "passes"
    fields |= {words[name]: value for name, value in _given(options, *words).items()}
    times = {f"probe_{name}": f"{name}_s" for name in ("interval", "timeout", "initial_delay", "grace")}
    return fields | _seconds(options, reading, {**times, "start_timeout": "start_timeout_s"})


def _update(options: DeployOptions, reading: OptionReader) -> dict[str, Any]:
    fields = _given(options, "max_surge", "max_unavailable", "pause_after", "rollback")
    for name in ("max_surge", "max_unavailable"):
        if str(fields.get(name, "")).isdigit():
            fields[name] = int(fields[name])
    return fields | _seconds(options, reading, {"min_ready": "min_ready_s", "progress_deadline": "progress_deadline_s"})


def _scaling(options: DeployOptions, reading: OptionReader) -> dict[str, Any]:
    words = {
        "min_replicas": "minimum",
        "max_replicas": "maximum",
        "target_outstanding": "outstanding",
        "scale_query": "query",
        "target_per_route": "per_route",
    }
    fields = {words[name]: value for name, value in _given(options, *words).items()}
    times = {name: f"{name}_s" for name in ("stabilization", "cooldown", "panic_window")}
    fields |= _seconds(options, reading, {**times, "scale_window": "window_s"})
    if fields and options.get("no_scaling"):
        reading.read(partial(refuse, "a scaling rule is changed or removed, not both"), None)
    return fields


def _given(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}


def _seconds(options: Mapping[str, Any], reading: OptionReader, names: Mapping[str, str]) -> dict[str, float]:
    """The given times in seconds, under the names of their fields."""
    parsers: dict[str, Callable[[], float]] = {
        field: partial(parse_duration, str(options[name]))
        for name, field in names.items()
        if options.get(name) is not None
    }
    return {field: reading.read(parse, 0.0) for field, parse in parsers.items()}
