"""Validates a deployment's specification, in the gateway and again in the state service.

As `admission` of jobs: all mistakes at once, each with the JSON pointer of its field. Source:
docs/design/semantics.md#deployments-and-routes, docs/design/serving.md#update.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from iris_core import codec
from iris_core.admission import MAX_SECONDS, pointer_to, validate_spec
from iris_core.errors import Code, Mistake, Refused
from iris_core.limits import MISTAKES, SPEC_BYTES
from iris_core.patches import merged
from iris_core.serving import DeploymentSpec, ScalingPolicy
from iris_core.spec import Probe

MAX_ROUTES = 1000
"""Routes of one deployment, including the surplus of an update."""
MAX_OUTSTANDING = 100_000
MAX_QUERY = 4000
MAX_WINDOW_S = 600.0
"""Over which the load of a deployment is measured; as long are its samples kept."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")
_PER_CENT = re.compile(r"(100|[1-9]?[0-9])%\Z")
_PATH = re.compile(r"/[\x21-\x7e]{0,1023}\Z")
_HEADER = re.compile(r"(cookie|header:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100})\Z")

Mistakes = Iterator[Mistake]


def validate_deployment(spec: DeploymentSpec) -> list[Mistake]:
    """The mistakes in a deployment's specification, at most `MISTAKES`; empty when it is valid."""
    size = len(codec.to_json(spec))
    if size > SPEC_BYTES:
        message = f"the deployment is {size} bytes long; the limit is {SPEC_BYTES}"
        return [Mistake(pointer="", code="too_large", message=message, hint="put what is large into the bundle")]
    return list(islice(_mistakes(spec), MISTAKES))


def patched(spec: DeploymentSpec, patch: bytes) -> DeploymentSpec:
    """The specification with a merge patch applied. Raises Refused when the result is not a specification."""
    try:
        wanted = merged(codec.to_builtins(spec), codec.from_json(patch, dict[str, Any]))
        return codec.from_builtins(wanted, DeploymentSpec)
    except codec.Undecodable as error:
        raise Refused(Code.INVALID, f"the patch makes no specification: {error}") from None


def _mistakes(spec: DeploymentSpec) -> Mistakes:
    if not _NAME.match(spec.name) or spec.name.isdigit():
        message = f"{spec.name[:80]!r} is not a deployment name"
        hint = "1 to 63 letters, digits, _ and -, starting with a letter or digit, not all digits"
        yield Mistake(pointer="/name", code="bad_name", message=message, hint=hint)
    yield from _whole("/replicas", spec.replicas, 0, MAX_ROUTES)
    yield from _template(spec)
    yield from _probe(spec.template.probe, spec.template.ports)
    if spec.port not in spec.template.ports:
        message = f"{spec.port[:80]!r} is not a port of the template"
        yield Mistake(pointer="/port", code="unknown_port", message=message, hint=", ".join(spec.template.ports))
    yield from _update(spec)
    yield from _scaling(spec)
    yield from _proxy(spec)
    yield from _seconds("/settle_s", spec.settle_s, 0, 3600)
    yield from _seconds("/grace_s", spec.grace_s, 0, 86_400)


def _template(spec: DeploymentSpec) -> Mistakes:
    """The mistakes in the template, as of the job that each route becomes."""
    for mistake in validate_spec(spec.template.job("/route", spec.user)):
        if mistake.pointer in ("/name", "/probe"):
            continue
        at = "" if mistake.pointer.startswith("/user") else "/template"
        yield Mistake(pointer=f"{at}{mistake.pointer}", code=mistake.code, message=mistake.message, hint=mistake.hint)


def _probe(probe: Probe, ports: tuple[str, ...]) -> Mistakes:
    at = "/template/probe"
    if probe.kind == "command" and not (probe.command and probe.command[0]):
        yield Mistake(pointer=f"{at}/command", code="empty", message="the probe has no command")
    if probe.kind != "command" and probe.port not in ports:
        message = f"{probe.port[:80]!r} is not a port of the template"
        yield Mistake(pointer=f"{at}/port", code="unknown_port", message=message, hint=", ".join(ports))
    for name, path in (("path", probe.path), ("ready_path", probe.ready_path or "/")):
        if probe.kind == "http" and not _PATH.match(path):
            yield Mistake(
                pointer=f"{at}/{name}", code="bad_path", message=f"{path[:80]!r} is not a path", hint="/healthz"
            )
    for number, status in enumerate(probe.expect):
        yield from _whole(pointer_to("template", "probe", "expect", number), status, 100, 599)
    for name, low in (("initial_delay_s", 0.0), ("interval_s", 0.1), ("timeout_s", 0.1), ("start_timeout_s", 1.0)):
        yield from _seconds(f"{at}/{name}", getattr(probe, name), low)
    yield from _seconds(f"{at}/grace_s", probe.grace_s, 0)
    yield from _whole(f"{at}/failures", probe.failures, 1, 1000)
    yield from _whole(f"{at}/passes", probe.passes, 1, 1000)


def _update(spec: DeploymentSpec) -> Mistakes:
    update, at = spec.update, "/update"
    wrong = [*_routes(f"{at}/max_surge", update.max_surge), *_routes(f"{at}/max_unavailable", update.max_unavailable)]
    yield from wrong
    if not wrong and all(value in (0, "0%") for value in (update.max_surge, update.max_unavailable)):
        message = "with a surge of 0 and 0 unavailable routes no update can move"
        yield Mistake(pointer=f"{at}/max_surge", code="no_room", message=message, hint="max_surge 1")
    yield from _seconds(f"{at}/min_ready_s", update.min_ready_s, 0)
    yield from _seconds(f"{at}/progress_deadline_s", update.progress_deadline_s, 1)
    least = spec.template.probe.start_timeout_s + update.min_ready_s
    if update.progress_deadline_s <= least:
        message = f"a route may take {least:g} s to become available, and the update fails after"
        message = f"{message} {update.progress_deadline_s:g} s without progress"
        hint = "a longer deadline, or a shorter start_timeout_s of the probe"
        yield Mistake(pointer=f"{at}/progress_deadline_s", code="too_short", message=message, hint=hint)
    if update.pause_after is not None:
        yield from _whole(f"{at}/pause_after", update.pause_after, 1, MAX_ROUTES)


def _routes(pointer: str, value: int | str) -> Mistakes:
    """A number of routes, or a percentage of all."""
    if isinstance(value, int):
        yield from _whole(pointer, value, 0, MAX_ROUTES)
    elif not _PER_CENT.match(value):
        yield Mistake(pointer=pointer, code="bad_per_cent", message=f"{value[:80]!r} is not a percentage", hint='"25%"')


def _scaling(spec: DeploymentSpec) -> Mistakes:
    scaling, at = spec.scaling, "/scaling"
    if scaling is None:
        return
    yield from _whole(f"{at}/minimum", scaling.minimum, 0, MAX_ROUTES)
    yield from _whole(f"{at}/maximum", scaling.maximum, 1, MAX_ROUTES)
    if scaling.minimum > scaling.maximum:
        message = f"the minimum is {scaling.minimum} and the maximum {scaling.maximum}"
        yield Mistake(pointer=f"{at}/minimum", code="out_of_range", message=message)
    for name in ("outstanding", "per_route"):
        value = getattr(scaling, name)
        if not (math.isfinite(value) and 0 < value <= MAX_OUTSTANDING):
            message = f"{value} is not more than 0 and at most {MAX_OUTSTANDING}"
            yield Mistake(pointer=f"{at}/{name}", code="out_of_range", message=message)
    if len(scaling.query) > MAX_QUERY or not scaling.query.isprintable():
        message = f"a query is one line of at most {MAX_QUERY} characters"
        yield Mistake(pointer=f"{at}/query", code="bad_query", message=message)
    yield from _scaling_times(scaling, at)


def _scaling_times(scaling: ScalingPolicy, at: str) -> Mistakes:
    """Windows that lie in each other: a number that falls sooner than the load is measured swings.

    A new leader holds for one window, and so forgets no step.
    """
    yield from _seconds(f"{at}/window_s", scaling.window_s, 1, MAX_WINDOW_S)
    yield from _seconds(f"{at}/cooldown_s", scaling.cooldown_s, 0)
    yield from _seconds(f"{at}/panic_window_s", scaling.panic_window_s, 1)
    yield from _seconds(f"{at}/stabilization_s", scaling.stabilization_s, 0)
    for short, long in (("cooldown_s", "window_s"), ("panic_window_s", "window_s"), ("window_s", "stabilization_s")):
        yield from _ordered(scaling, at, short, long)


def _ordered(scaling: ScalingPolicy, at: str, short: str, long: str) -> Mistakes:
    """A mistake when one time is longer than another; of two that differ it is that which has not its default."""
    less, more = getattr(scaling, short), getattr(scaling, long)
    shorter, longer = (name.removesuffix("_s").replace("_", " ") for name in (short, long))
    if less <= more:
        return
    if less == getattr(ScalingPolicy(), short):
        message = f"{more:g} s is shorter than the {shorter}, which is {less:g} s"
        yield Mistake(pointer=f"{at}/{long}", code="out_of_range", message=message)
    else:
        message = f"{less:g} s is longer than the {longer}, which is {more:g} s"
        yield Mistake(pointer=f"{at}/{short}", code="out_of_range", message=message)


def _proxy(spec: DeploymentSpec) -> Mistakes:
    proxy, at = spec.proxy, "/proxy"
    for name in ("connect_s", "first_byte_s", "idle_s", "total_s", "queue_s"):
        value = getattr(proxy, name)
        if value is not None:
            yield from _seconds(f"{at}/{name}", value, 0 if name == "queue_s" else 0.01)
    yield from _whole(f"{at}/body_bytes", proxy.body_bytes, 0, 1 << 50)
    yield from _whole(f"{at}/max_outstanding", proxy.max_outstanding, 1, MAX_OUTSTANDING)
    if proxy.affinity and not _HEADER.match(proxy.affinity):
        message = f"{proxy.affinity[:80]!r} is not an affinity"
        yield Mistake(pointer=f"{at}/affinity", code="bad_affinity", message=message, hint="cookie, or header:NAME")


def _whole(pointer: str, value: int, low: int, high: int) -> Mistakes:
    if not low <= value <= high:
        yield Mistake(pointer=pointer, code="out_of_range", message=f"{value} is not between {low} and {high}")


def _seconds(pointer: str, value: float, low: float, high: float = MAX_SECONDS) -> Mistakes:
    if not (math.isfinite(value) and low <= value <= high):
        message = f"{value} is not a time between {low:g} and {high:g} seconds"
        yield Mistake(pointer=pointer, code="out_of_range", message=message)
