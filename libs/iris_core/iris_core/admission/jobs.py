"""Validates a job's specification, in the gateway and again in the state service. It needs no
records.

All mistakes are found at once, each with the JSON pointer of its field. The decoder checks shapes
and types.
Source: docs/design/semantics.md#jobs, docs/design/semantics.md#coscheduling,
docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice, pairwise
from typing import Any

from msgspec.structs import astuple

from iris_core import codec
from iris_core.admission import archive_paths
from iris_core.admission import stops as stop_admission
from iris_core.errors import Invalid, Mistake, Refused, pointer_to
from iris_core.limits import MISTAKES, SPEC_BYTES
from iris_core.moments import parse_moment, show_duration
from iris_core.names import JobName
from iris_core.placement import constraints, topology
from iris_core.spec import exit_rules, field_rules, projects
from iris_core.spec.calls import INLINE_BYTES, inlined, is_inline
from iris_core.spec.index_set import IndexSet
from iris_core.spec.jobs import (
    DEFAULT_MAX_BACKOFF_S,
    MAX_AFTER,
    MAX_COMMAND_BYTES,
    MAX_ENV_BYTES,
    MAX_PORTS,
    MAX_PRELOAD,
    Environment,
    JobSpec,
)
from iris_core.spec.resources import AUTO, CPU, VARIANT
from iris_core.units import counted

_MODULE = 200
_INTERPRETER = re.compile(r"python[0-9.]*\Z")
_ENV_LINE = 60_000
MASK = "***"
"""What views show in place of a secret value; a value that was read and is sent back."""

SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_VARIANT = re.compile(rf"{VARIANT}\Z")

MAX_VARIANTS = 8
"""Alternatives of a device."""


def validate_spec(spec: JobSpec) -> list[Mistake]:
    """The mistakes in a job's specification by its fields, at most `MISTAKES`; empty when the job
    is valid.
    """
    return list(_size(spec)) or sorted(islice(_mistakes(spec), MISTAKES), key=_place)


def _place(mistake: Mistake) -> int:
    return _FIELDS.index(mistake.pointer.split("/")[1])


def _mistakes(spec: JobSpec) -> Iterator[Mistake]:
    """The mistakes in single fields, and those that the rules find which read a field that was
    given; defaults are valid.
    """
    yield from field_rules.mistakes(spec)
    given = {"name", "command"}
    values = zip(_FIELDS, astuple(spec), _DEFAULTS, strict=True)
    given |= {
        field for field, value, default in values if value is not default and value != default
    }
    for reads, rule in _reads_of_rules():
        if not reads.isdisjoint(given):
            yield from rule(spec)


def admit(spec: JobSpec) -> None:
    """Raises Invalid with every mistake when the job may not be admitted."""
    mistakes = validate_spec(spec)
    if mistakes:
        raise Invalid(mistakes)


def _size(spec: JobSpec) -> Iterator[Mistake]:
    """Limit the size, because most messages about a job hold its whole specification."""
    size = len(codec.to_json(spec))
    if size > SPEC_BYTES:
        message = f"the job is {size} bytes long; the limit is {SPEC_BYTES}"
        yield Mistake(
            pointer="", code="too_large", message=message, hint="put what is large into the bundle"
        )


def _name(spec: JobSpec) -> Iterator[Mistake]:
    try:
        JobName.job(spec.name)
    except Refused as refused:
        yield Mistake(
            pointer="/name", code="bad_name", message=refused.detail, hint="/train or /train/eval-1"
        )


def command_bytes(command: Sequence[str]) -> int:
    """What a command counts of `MAX_COMMAND_BYTES`."""
    return sum(len(word.encode()) + 1 for word in command)


def _command(spec: JobSpec) -> Iterator[Mistake]:
    if not spec.command or not spec.command[0]:
        yield Mistake(
            pointer="/command", code="empty", message="command is empty", hint='["python", "a.py"]'
        )
    size = command_bytes(spec.command)
    if size > MAX_COMMAND_BYTES:
        message = f"the command is {size} bytes long; the limit is {MAX_COMMAND_BYTES}"
        yield Mistake(
            pointer="/command", code="too_long", message=message, hint="put it into the bundle"
        )


def _env(spec: JobSpec) -> Iterator[Mistake]:
    for key, value in spec.env.items():
        pointer = pointer_to("env", key)
        if value == MASK:
            message = f"{MASK} stands for the value of {key[:80]}, which is not shown"
            hint = "the value; in a change of a deployment leave the variable out, and it stays"
            yield Mistake(pointer=pointer, code="masked", message=message, hint=hint)
    size = sum(len(key.encode()) + len(value.encode()) + 2 for key, value in spec.env.items())
    if size > MAX_ENV_BYTES:
        message = f"the environment is {size} bytes long; the limit is {MAX_ENV_BYTES}"
        yield Mistake(
            pointer="/env", code="too_long", message=message, hint="put it into the bundle"
        )


def _resources(spec: JobSpec) -> Iterator[Mistake]:
    ask = spec.resources
    if ask.is_limited_below_request:
        limit = CPU.unit.show(ask.cpu_limit_millis)
        message = f"the limit of {limit} cores is below the request"
        yield Mistake(
            pointer="/resources/cpu_limit_millis",
            code="out_of_range",
            message=message,
            hint=f"request {limit} too",
        )
    if ask.device is None:
        return
    variants = ask.device.variants
    wrong = next((one for one in variants if not _VARIANT.match(one)), None)
    if wrong is not None:
        message = f"{wrong[:80]!r} is not a variant"
        yield Mistake(
            pointer="/resources/device/variant",
            code="bad_variant",
            message=message,
            hint="H100, or auto",
        )
    elif not 0 < len(set(variants)) == len(variants) <= MAX_VARIANTS or (
        ask.device.has_alternatives and AUTO in variants
    ):
        message = f"alternatives are 1 to {MAX_VARIANTS} different variants, none of them {AUTO}"
        yield Mistake(
            pointer="/resources/device/variant",
            code="bad_alternatives",
            message=message,
            hint="H100, A100",
        )
    else:
        yield from topology.validate_device(ask.device)


def _on_exit(spec: JobSpec) -> Iterator[Mistake]:
    for number, rule in enumerate(spec.on_exit[: exit_rules.MAX_RULES]):
        for message in exit_rules.mistakes(rule):
            pointer = pointer_to("on_exit", number, "codes")
            yield Mistake(
                pointer=pointer,
                code="bad_code",
                message=message,
                hint="for example 75, 64-78 or SIGBUS",
            )


def _notify(spec: JobSpec) -> Iterator[Mistake]:
    for number, rule in enumerate(spec.notify):
        if not rule.on:
            message = f"{rule.to} is told of nothing"
            hint = "for example failed"
            pointer = pointer_to("notify", number, "on")
            yield Mistake(pointer=pointer, code="empty", message=message, hint=hint)
        for place, word in enumerate(rule.on):
            if word.startswith("time_") and spec.timeout_s is None:
                message = f"{word} is a part of a task's time limit, and this job has none"
                yield Mistake(
                    pointer=pointer_to("notify", number, "on", place),
                    code="unexpected",
                    message=message,
                    hint="specify timeout_s too",
                )


def _indexes(spec: JobSpec) -> Iterator[Mistake]:
    if not spec.indexes:
        return
    if spec.is_gang:
        message = "the tasks of a gang are placed together: it has all of its indexes"
        yield Mistake(
            pointer="/indexes", code="unexpected", message=message, hint="leave indexes out"
        )
        return
    try:
        found = IndexSet.parse(spec.indexes)
    except ValueError as error:
        yield Mistake(
            pointer="/indexes", code="bad_indexes", message=str(error), hint="1,3,5 or 0-15:4,20"
        )
        return
    if not found.is_within(spec.replicas):
        message = f"index {found[len(found) - 1]} is not below the {spec.replicas} replicas of the whole job"
        yield Mistake(
            pointer="/indexes", code="out_of_range", message=message, hint="more replicas"
        )


def _together(spec: JobSpec) -> Iterator[Mistake]:
    for field in ("array", "each_line", "max_parallel") if spec.is_gang else ():
        if getattr(spec, field):
            message = f"the tasks of a gang run together, so it has no {field}"
            yield Mistake(
                pointer=f"/{field}", code="unexpected", message=message, hint=f"leave {field} out"
            )


def _array(spec: JobSpec) -> Iterator[Mistake]:
    if not spec.array or spec.is_gang:
        return
    try:
        found = IndexSet.parse(spec.array)
    except ValueError as error:
        yield Mistake(pointer="/array", code="bad_indexes", message=str(error), hint="0-15:4,20")
        return
    if len(found) != spec.replicas:
        message = f"an array of {counted(len(found), 'value')} for {counted(spec.replicas, 'task')}"
        yield Mistake(
            pointer="/replicas", code="wrong_size", message=message, hint=f"replicas {len(found)}"
        )


def _each_line(spec: JobSpec) -> Iterator[Mistake]:
    if not spec.each_line:
        return
    if spec.array:
        message = "a task has one value, of the array or of the file"
        yield Mistake(
            pointer="/each_line", code="unexpected", message=message, hint="leave array out"
        )
    if spec.bundle is None:
        message = f"there is no bundle that holds {spec.each_line[:80]}"
        yield Mistake(
            pointer="/each_line",
            code="no_bundle",
            message=message,
            hint="store the file in a bundle",
        )
    yield from _plain_path("/each_line", spec.each_line, "a file of the bundle", "params.txt")


def _calls(spec: JobSpec) -> Iterator[Mistake]:
    calls = spec.calls
    if calls is None:
        return
    inside = [one for one in calls.segments if is_inline(one)]
    if len(inside) > 1 or not all(_is_small_file(one) for one in inside):
        message = f"only one file of arguments may be in the specification, in base64, of at most {INLINE_BYTES} bytes"
        yield Mistake(pointer="/calls/segments", code="too_large", message=message)
    ascending = all(before < after for before, after in pairwise((-1, *calls.firsts)))
    if len(calls.firsts) != len(calls.segments) or calls.firsts[:1] != (0,) or not ascending:
        message = "not one ascending index for each segment, from 0"
        yield Mistake(pointer="/calls/firsts", code="bad_indexes", message=message)
    if calls.reuse > 1 and spec.environment is not None and spec.environment.image:
        message = "calls in containers have a process each"
        yield Mistake(
            pointer="/calls/reuse",
            code="unexpected",
            message=message,
            hint="leave reuse or the image out",
        )
    if calls.reuse > 1 and calls.fresh == "process":
        message = "a process of its own makes one call"
        hint = "leave reuse or fresh out"
        yield Mistake(pointer="/calls/fresh", code="unexpected", message=message, hint=hint)
    if calls.idle_s is not None:
        yield from _open(spec)


def _is_small_file(segment: str) -> bool:
    try:
        return len(inlined(segment)) <= INLINE_BYTES
    except ValueError:  # no base64, which the limits of its field have told
        return True


def _open(spec: JobSpec) -> Iterator[Mistake]:
    """An open job: what refers to a fixed number of tasks cannot be beside further calls."""
    fixed = [
        name for name in ("indexes", "array", "each_line", "coscheduling") if getattr(spec, name)
    ]
    fixed += ["after"] if any(one.each for one in spec.after) else []
    for name in fixed:
        message = "an open job has no fixed number of tasks, to which this refers"
        yield Mistake(
            pointer=f"/{name}", code="unexpected", message=message, hint=f"leave {name} out"
        )
    calls = spec.calls
    if (
        calls is not None
        and calls.chunksize > 0
        and -(-calls.count // calls.chunksize) != spec.replicas
    ):
        message = (
            f"{spec.replicas} tasks of {calls.chunksize} calls do not make {calls.count} calls"
        )
        yield Mistake(pointer="/calls/count", code="out_of_range", message=message)


def _ports(spec: JobSpec) -> Iterator[Mistake]:
    seen: set[str] = set()
    for number, port in enumerate(spec.ports[:MAX_PORTS]):
        if port.upper() in seen:
            yield Mistake(
                pointer=pointer_to("ports", number),
                code="duplicate",
                message=f"{port!r} appears twice",
            )
        seen.add(port.upper())


def _probe(spec: JobSpec) -> Iterator[Mistake]:
    if spec.probe is not None:
        message = "a job has no probe"
        hint = "create a deployment: its routes are probed"
        yield Mistake(pointer="/probe", code="not_a_route", message=message, hint=hint)


def _environment(spec: JobSpec) -> Iterator[Mistake]:
    wanted = spec.environment
    if wanted is None:
        return
    if wanted.packages and spec.bundle is None:
        message = f"there is no bundle that holds {wanted.packages}"
        yield Mistake(
            pointer="/environment/packages",
            code="no_bundle",
            message=message,
            hint="send a --workdir",
        )
    if (size := len(wanted.setup.encode())) > MAX_COMMAND_BYTES:
        message = f"the command is {size} bytes long; the limit is {MAX_COMMAND_BYTES}"
        yield Mistake(
            pointer="/environment/setup",
            code="too_long",
            message=message,
            hint="put it into the bundle",
        )
    if wanted.image:
        yield from _image(spec, wanted)


def _image(spec: JobSpec, wanted: Environment) -> Iterator[Mistake]:
    """Runtimes read the variables of a container from the lines of a file, each of which they limit
    to 64 KiB.
    """
    for name in ("packages", "setup", "python"):
        if getattr(wanted, name):
            message = f"an image brings its own packages and takes no {name}"
            yield Mistake(pointer=f"/environment/{name}", code="unexpected", message=message)
    for key, value in spec.env.items():
        if "\n" in value or "\r" in value or len(value.encode()) > _ENV_LINE:
            message = f"the value of {key[:80]} is not one line of at most {_ENV_LINE} bytes, as an image needs it"
            yield Mistake(
                pointer=pointer_to("env", key),
                code="not_a_line",
                message=message,
                hint="put it into a file",
            )


def _backoff(spec: JobSpec) -> Iterator[Mistake]:
    """The default longest pause is no limit below the first one, so that --backoff alone may be
    longer.
    """
    if spec.backoff_s is not None and DEFAULT_MAX_BACKOFF_S != spec.max_backoff_s < spec.backoff_s:
        longest = show_duration(spec.max_backoff_s)
        first = show_duration(spec.backoff_s)
        message = f"the longest pause, {longest}, is shorter than the first one, {first}"
        hint = f"at least {first}, or leave it out"
        yield Mistake(pointer="/max_backoff_s", code="out_of_range", message=message, hint=hint)


def _output(spec: JobSpec) -> Iterator[Mistake]:
    if spec.output:
        yield from _plain_path(
            "/output", spec.output, "a directory below the task's own", "out, or results/final"
        )


def _preload(spec: JobSpec) -> Iterator[Mistake]:
    for number, name in enumerate(spec.preload[:MAX_PRELOAD]):
        parts = name.split(".")
        if (
            not all(part.isidentifier() for part in parts)
            or "__main__" in parts
            or len(name) > _MODULE
        ):
            message = f"{name[:80]!r} is not the name of a Python module that can be imported"
            yield Mistake(
                pointer=pointer_to("preload", number),
                code="bad_module",
                message=message,
                hint="torch",
            )
    if spec.preload and spec.environment is not None and spec.environment.image:
        message = "modules are preloaded on the host, so the job takes no image"
        yield Mistake(pointer="/preload", code="unexpected", message=message)
    if spec.preload and spec.calls is None and not is_cloneable(spec.command):
        message = "only `python FILE` and `python -m MODULE` have modules preloaded"
        yield Mistake(
            pointer="/preload", code="not_a_script", message=message, hint="python train.py"
        )


def _terminal(spec: JobSpec) -> Iterator[Mistake]:
    """A terminal is that of one process, which nobody starts again when it has gone."""
    if not spec.terminal:
        return
    if spec.task_count != 1 or spec.is_gang:
        message = f"a terminal is that of one task, not of {spec.replicas}"
        yield Mistake(pointer="/replicas", code="unexpected", message=message, hint="replicas 1")
    others = {
        "max_retries_failure": spec.max_retries_failure,
        "on_exit": spec.on_exit,
        "preload": spec.preload,
        "calls": spec.calls,
        "probe": spec.probe,
    }
    for field in (name for name, value in others.items() if value):
        message = f"a task with a terminal has no {field}: it ends with its terminal"
        yield Mistake(
            pointer=f"/{field}", code="unexpected", message=message, hint=f"leave {field} out"
        )


def is_cloneable(command: Sequence[str]) -> bool:
    """Whether a command is ``python FILE ...`` or ``python -m MODULE ...``, without other options
    of Python.
    """
    if len(command) < 2 or not _INTERPRETER.match(command[0].rpartition("/")[2]):
        return False
    return not command[1].startswith("-") or (command[1] == "-m" and len(command) > 2)


def _plain_path(pointer: str, path: str, kind: str, hint: str) -> Iterator[Mistake]:
    try:
        plain = archive_paths.names(path)
    except archive_paths.InvalidArchive as error:
        plain = ()
        message = str(error)
    else:
        message = f"{path!r} is not the plain path of {kind}"
    if "/".join(plain) != path or path.startswith("-") or not path.isprintable():
        yield Mistake(pointer=pointer, code="bad_path", message=message, hint=hint)


def _gates(spec: JobSpec) -> Iterator[Mistake]:
    for place, wanted in enumerate(spec.after[:MAX_AFTER]):
        if wanted.each and spec.is_gang:
            message = "the tasks of a gang start together: they do not wait one by one"
            pointer = pointer_to("after", place, "each")
            yield Mistake(
                pointer=pointer, code="unexpected", message=message, hint="leave each out"
            )
    if spec.not_before:
        try:
            parse_moment(spec.not_before, 0)
        except ValueError as error:
            yield Mistake(pointer="/not_before", code="bad_time", message=str(error))


def _project(spec: JobSpec) -> Iterator[Mistake]:
    try:
        projects.normal(spec.project)
    except Refused as refused:
        yield Mistake(
            pointer="/project",
            code="bad_project",
            message=refused.detail,
            hint="/research or /research/nlp",
        )


def _constraints(spec: JobSpec) -> Iterable[Mistake]:
    return constraints.validate(spec.constraints)


SpecRule = Callable[[JobSpec], Iterable[Mistake]]
_RULES: tuple[SpecRule, ...] = (
    _name,
    _command,
    _env,
    _indexes,
    _together,
    _array,
    _each_line,
    _resources,
    _constraints,
    topology.validate_coscheduling,
    _on_exit,
    _notify,
    _backoff,
    stop_admission.mistakes,
    _calls,
    _ports,
    _probe,
    _environment,
    _output,
    _gates,
    _preload,
    _terminal,
    _project,
)
"""Rules between fields, or that need more than a limit of one."""
_FIELDS = JobSpec.__struct_fields__
_DEFAULTS = astuple(JobSpec(name="", command=()))
"""Of each field; a name and a command are always given."""


class _Read(JobSpec, frozen=True):
    """A specification that notes which of its fields are read."""

    def __getattribute__(self, name: str) -> Any:
        if name in _FIELDS:
            _READ.add(name)
        return super().__getattribute__(name)


_READ: set[str] = set()


@cache
def _reads_of_rules() -> tuple[tuple[frozenset[str], SpecRule], ...]:
    """Each rule, and the fields that it reads of defaults. Where these have their defaults it goes
    the same way, and finds nothing.
    """
    plain = _Read(name="/x", command=("true",))
    found = []
    for rule in _RULES:
        _READ.clear()
        list(rule(plain))
        found.append((frozenset(_READ), rule))
    return tuple(found)
