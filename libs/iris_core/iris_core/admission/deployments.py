"""Validates a deployment's specification, in the gateway and again in the state service.

As `admission` of jobs: all mistakes at once, each with the JSON pointer of its field. Source:
docs/design/semantics.md#deployments-and-routes, docs/design/serving.md#update.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from iris_core import codec
from iris_core.admission.jobs import validate_spec
from iris_core.admission.patches import merged
from iris_core.errors import Code, Mistake, Refused
from iris_core.limits import MISTAKES, SPEC_BYTES
from iris_core.moments import show_duration
from iris_core.spec import field_rules
from iris_core.spec.jobs import Probe
from iris_core.spec.serving import DeploymentSpec, ScalingPolicy

MAX_QUERY = 4000
_PATH = re.compile(r"/[\x21-\x7e]{0,1023}\Z")

Mistakes = Iterator[Mistake]


def validate_deployment(spec: DeploymentSpec) -> list[Mistake]:
    """The mistakes in a deployment's specification, at most `MISTAKES`; empty when it is valid."""
    size = len(codec.to_json(spec))
    if size > SPEC_BYTES:
        message = f"the deployment is {size} bytes long; the limit is {SPEC_BYTES}"
        return [
            Mistake(
                pointer="",
                code="too_large",
                message=message,
                hint="put what is large into the bundle",
            )
        ]
    return list(islice(_mistakes(spec), MISTAKES))


def patched(spec: DeploymentSpec, patch: bytes) -> DeploymentSpec:
    """The specification with a merge patch applied. Raises Refused when the result is not a
    specification.
    """
    try:
        wanted = merged(codec.to_builtins(spec), codec.from_json(patch, dict[str, Any]))
        return codec.from_builtins(wanted, DeploymentSpec)
    except codec.Undecodable as error:
        raise Refused(Code.INVALID, f"the patch makes no specification: {error}") from None


def _mistakes(spec: DeploymentSpec) -> Mistakes:
    yield from field_rules.mistakes(spec, but=("template", "user"))
    yield from _template(spec)
    yield from _probe(spec.template.probe, spec.template.ports)
    if spec.port not in spec.template.ports:
        message = f"{spec.port[:80]!r} is not a port of the template"
        yield Mistake(
            pointer="/port",
            code="unknown_port",
            message=message,
            hint=", ".join(spec.template.ports),
        )
    yield from _update(spec)
    yield from _scaling(spec)


def _template(spec: DeploymentSpec) -> Mistakes:
    """The mistakes in the template, as of the job that each route becomes."""
    for mistake in validate_spec(spec.template.job("/route", spec.user, spec.project)):
        if mistake.pointer in ("/name", "/probe"):
            continue
        at = "" if mistake.pointer.startswith(("/user", "/project")) else "/template"
        yield Mistake(
            pointer=f"{at}{mistake.pointer}",
            code=mistake.code,
            message=mistake.message,
            hint=mistake.hint,
        )


def _probe(probe: Probe, ports: tuple[str, ...]) -> Mistakes:
    at = "/template/probe"
    if probe.kind == "command" and not (probe.command and probe.command[0]):
        yield Mistake(pointer=f"{at}/command", code="empty", message="the probe has no command")
    if probe.kind != "command" and probe.port not in ports:
        message = f"{probe.port[:80]!r} is not a port of the template"
        yield Mistake(
            pointer=f"{at}/port", code="unknown_port", message=message, hint=", ".join(ports)
        )
    for name, path in (("path", probe.path), ("ready_path", probe.ready_path or "/")):
        if probe.kind == "http" and not _PATH.match(path):
            yield Mistake(
                pointer=f"{at}/{name}",
                code="bad_path",
                message=f"{path[:80]!r} is not a path",
                hint="/healthz",
            )


def _update(spec: DeploymentSpec) -> Mistakes:
    update = spec.update
    at = "/update"
    if all(value in (0, "0%") for value in (update.max_surge, update.max_unavailable)):
        message = "with a surge of 0 and 0 unavailable routes no update can move"
        yield Mistake(
            pointer=f"{at}/max_surge", code="no_room", message=message, hint="max_surge 1"
        )
    least = spec.template.probe.start_timeout_s + update.min_ready_s
    if update.progress_deadline_s <= least:
        message = f"a route may take {show_duration(least)} to become available, and the update fails after"
        message = f"{message} {show_duration(update.progress_deadline_s)} without progress"
        hint = "a longer deadline, or a shorter start timeout of the probe"
        yield Mistake(
            pointer=f"{at}/progress_deadline_s", code="too_short", message=message, hint=hint
        )


def _scaling(spec: DeploymentSpec) -> Mistakes:
    scaling = spec.scaling
    at = "/scaling"
    if scaling is None:
        return
    if scaling.minimum > scaling.maximum:
        message = f"the minimum is {scaling.minimum} and the maximum {scaling.maximum}"
        yield Mistake(pointer=f"{at}/minimum", code="out_of_range", message=message)
    if len(scaling.query) > MAX_QUERY or not scaling.query.isprintable():
        message = f"a query is one line of at most {MAX_QUERY} characters"
        yield Mistake(pointer=f"{at}/query", code="bad_query", message=message)
    yield from _scaling_times(scaling, at)


def _scaling_times(scaling: ScalingPolicy, at: str) -> Mistakes:
    """Windows that lie in each other: a number that falls sooner than the load is measured swings.

    A new leader holds for one window, and so forgets no step.
    """
    for short, long in (
        ("cooldown_s", "window_s"),
        ("panic_window_s", "window_s"),
        ("window_s", "stabilization_s"),
    ):
        yield from _ordered(scaling, at, short, long)


def _ordered(scaling: ScalingPolicy, at: str, short: str, long: str) -> Mistakes:
    """A mistake when one time is longer than another; of two that differ it is that which has not
    its default.
    """
    less = getattr(scaling, short)
    more = getattr(scaling, long)
    brief = show_duration(less)
    lasting = show_duration(more)
    shorter, longer = (name.removesuffix("_s").replace("_", " ") for name in (short, long))
    if less <= more:
        return
    if less == getattr(ScalingPolicy(), short):
        message = f"{lasting} is shorter than the {shorter}, which is {brief}"
        yield Mistake(pointer=f"{at}/{long}", code="out_of_range", message=message)
    else:
        message = f"{brief} is longer than the {longer}, which is {lasting}"
        yield Mistake(pointer=f"{at}/{short}", code="out_of_range", message=message)
