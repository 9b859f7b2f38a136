"""Validates a job's specification, in the gateway and again in the state service. It needs no records.

All mistakes are found at once, each with the JSON pointer of its field. The decoder checks shapes and types.
Source: docs/design/semantics.md#jobs, docs/design/semantics.md#coscheduling,
docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice, pairwise
from typing import Any

from msgspec.structs import astuple

from iris_core import archive_paths, codec, constraints, exit_rules, stop_admission, topology
from iris_core.errors import Invalid, Mistake, Refused
from iris_core.index_set import IndexSet
from iris_core.limits import MISTAKES, SPEC_BYTES
from iris_core.moments import parse_moment
from iris_core.names import JobName
from iris_core.resources import AUTO, CHIPS, CPU, REQUESTED
from iris_core.spec import (
    INLINE_BYTES,
    MAX_COMMAND_BYTES,
    MAX_ENV_BYTES,
    MAX_REPLICAS,
    Calls,
    Environment,
    JobSpec,
    inlined,
    is_inline,
)

MAX_RETRIES = 10_000
MAX_SECONDS = 10 * 365 * 86_400
MAX_IDLE_S = 86_400
MAX_LABELS = 64
MAX_PORTS = 32
MAX_AFTER = 32
MAX_PRELOAD = 64
_MODULE = 200
_INTERPRETER = re.compile(r"python[0-9.]*\Z")
_ENV_LINE = 60_000
MASK = "***"
"""What views show in place of a secret value; a value that was read and is sent back."""

_ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
_PORT = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}\Z")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\Z")
SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_USER = re.compile(r"[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,127}\Z")
_IMAGE = re.compile(
    r"(?=[A-Za-z0-9].{0,511}\Z)([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9._/-]+"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?\Z"
)
_PYTHON = re.compile(r"3\.[0-9]{1,2}(\.[0-9]{1,2})?\Z")
_SINGLETON = re.compile(r"[!-~]{1,128}\Z")
_VARIANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")

MAX_VARIANTS = 8
"""Alternatives of a device."""


def validate_spec(spec: JobSpec) -> list[Mistake]:
    """The mistakes in a job's specification, at most `MISTAKES`; empty when the job is valid."""
    return list(_size(spec)) or list(islice(_mistakes(spec), MISTAKES))


def _mistakes(spec: JobSpec) -> Iterator[Mistake]:
    """The mistakes that the rules find which read a field that was given; defaults are valid."""
    given = {"name", "command"}
    values = zip(_FIELDS, astuple(spec), _DEFAULTS, strict=True)
    given |= {field for field, value, default in values if value is not default and value != default}
    for reads, rule in _reads_of_rules():
        if not reads.isdisjoint(given):
            yield from rule(spec)


def admit(spec: JobSpec) -> None:
    """Raises Invalid with every mistake when the job may not be admitted."""
    mistakes = validate_spec(spec)
    if mistakes:
        raise Invalid(mistakes)


def pointer_to(*parts: str | int) -> str:
    """A JSON pointer (RFC 6901) to a field."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _size(spec: JobSpec) -> Iterator[Mistake]:
    """Limit the size, because most messages about a job hold its whole specification."""
    size = len(codec.to_json(spec))
    if size > SPEC_BYTES:
        message = f"the job is {size} bytes long; the limit is {SPEC_BYTES}"
        yield Mistake(pointer="", code="too_large", message=message, hint="put what is large into the bundle")


def _name(spec: JobSpec) -> Iterator[Mistake]:
    try:
        JobName.job(spec.name)
    except Refused as refused:
        yield Mistake(pointer="/name", code="bad_name", message=refused.detail, hint="/train or /train/eval-1")


def command_bytes(command: Sequence[str]) -> int:
    """What a command counts of `MAX_COMMAND_BYTES`."""
    return sum(len(word.encode()) + 1 for word in command)


def _command(spec: JobSpec) -> Iterator[Mistake]:
    if not spec.command or not spec.command[0]:
        yield Mistake(pointer="/command", code="empty", message="command is empty", hint='["python", "a.py"]')
    for number, word in enumerate(spec.command):
        if "\0" in word:
            yield Mistake(pointer=pointer_to("command", number), code="nul_byte", message="a word holds a NUL byte")
    size = command_bytes(spec.command)
    if size > MAX_COMMAND_BYTES:
        message = f"the command is {size} bytes long; the limit is {MAX_COMMAND_BYTES}"
        yield Mistake(pointer="/command", code="too_long", message=message, hint="put it into the bundle")


def _env(spec: JobSpec) -> Iterator[Mistake]:
    for key, value in spec.env.items():
        pointer = pointer_to("env", key)
        if not _ENV_KEY.match(key):
            hint = "letters, digits and _ . -, not starting with a digit"
            yield Mistake(
                pointer=pointer, code="bad_env_key", message=f"{key[:80]!r} is not a valid variable name", hint=hint
            )
        if "\0" in value:
            yield Mistake(pointer=pointer, code="nul_byte", message="the value holds a NUL byte")
        if value == MASK:
            message = f"{MASK} stands for the value of {key[:80]}, which is not shown"
            hint = "the value; in a change of a deployment leave the variable out, and it stays"
            yield Mistake(pointer=pointer, code="masked", message=message, hint=hint)
    size = sum(len(key.encode()) + len(value.encode()) + 2 for key, value in spec.env.items())
    if size > MAX_ENV_BYTES:
        message = f"the environment is {size} bytes long; the limit is {MAX_ENV_BYTES}"
        yield Mistake(pointer="/env", code="too_long", message=message, hint="put it into the bundle")


def _resources(spec: JobSpec) -> Iterator[Mistake]:
    ask = spec.resources
    for resource in REQUESTED:
        yield from _amount(f"/resources/{resource.name}", getattr(ask, resource.name), 0, resource.largest)
    yield from _amount("/resources/cpu_limit_millis", ask.cpu_limit_millis, 0, CPU.largest)
    if ask.is_limited_below_request:
        limit = CPU.unit.show(ask.cpu_limit_millis)
        message = f"the limit of {limit} cores is below the request"
        yield Mistake(
            pointer="/resources/cpu_limit_millis", code="out_of_range", message=message, hint=f"request {limit} too"
        )
    if ask.device is None:
        return
    yield from _amount("/resources/device/count", ask.device.count, 1, CHIPS.largest)
    variants = ask.device.variants
    wrong = next((one for one in variants if not _VARIANT.match(one)), None)
    if wrong is not None:
        message = f"{wrong[:80]!r} is not a variant"
        yield Mistake(pointer="/resources/device/variant", code="bad_variant", message=message, hint="H100, or auto")
    elif not 0 < len(set(variants)) == len(variants) <= MAX_VARIANTS or (
        ask.device.has_alternatives and AUTO in variants
    ):
        message = f"alternatives are 1 to {MAX_VARIANTS} different variants, none of them {AUTO}"
        yield Mistake(pointer="/resources/device/variant", code="bad_alternatives", message=message, hint="H100, A100")
    else:
        yield from topology.validate_device(ask.device)


def _replicas(spec: JobSpec) -> Iterator[Mistake]:
    yield from _amount("/replicas", spec.replicas, 1, MAX_REPLICAS)


def _constraints(spec: JobSpec) -> Iterable[Mistake]:
    return constraints.validate(spec.constraints)


def _timeouts(spec: JobSpec) -> Iterator[Mistake]:
    yield from _seconds("/scheduling_timeout_s", spec.scheduling_timeout_s)
    yield from _seconds("/timeout_s", spec.timeout_s)


def _retries(spec: JobSpec) -> Iterator[Mistake]:
    yield from _amount("/max_retries_failure", spec.max_retries_failure, 0, MAX_RETRIES)
    yield from _amount("/max_retries_preemption", spec.max_retries_preemption, 0, MAX_RETRIES)
    yield from _amount("/max_task_failures", spec.max_task_failures, 0, MAX_REPLICAS)
    yield from _seconds("/backoff_s", spec.backoff_s)
    yield from _seconds("/max_backoff_s", spec.max_backoff_s)
    yield from _amount("/max_requeues", spec.max_requeues, 0, MAX_RETRIES)
    if len(spec.on_exit) > exit_rules.MAX_RULES:
        yield Mistake(pointer="/on_exit", code="too_many", message=f"at most {exit_rules.MAX_RULES} rules")
    for number, rule in enumerate(spec.on_exit[: exit_rules.MAX_RULES]):
        for message in exit_rules.mistakes(rule):
            pointer = pointer_to("on_exit", number, "codes")
            yield Mistake(pointer=pointer, code="bad_code", message=message, hint="75, 64-78 or SIGBUS")


def _indexes(spec: JobSpec) -> Iterator[Mistake]:
    if not spec.indexes:
        return
    if spec.is_gang:
        message = "the tasks of a gang are placed together: it has all of its indexes"
        yield Mistake(pointer="/indexes", code="unexpected", message=message, hint="leave indexes out")
        return
    try:
        found = IndexSet.parse(spec.indexes)
    except ValueError as error:
        yield Mistake(pointer="/indexes", code="bad_indexes", message=str(error), hint="1,3,5 or 0-15:4,20")
        return
    if not found.is_within(spec.replicas):
        message = f"index {found[len(found) - 1]} is not below the {spec.replicas} replicas of the whole job"
        yield Mistake(pointer="/indexes", code="out_of_range", message=message, hint="more replicas")


def _array(spec: JobSpec) -> Iterator[Mistake]:
    if not spec.array:
        return
    if spec.is_gang:
        yield _not_in_a_gang("array")
        return
    try:
        found = IndexSet.parse(spec.array)
    except ValueError as error:
        yield Mistake(pointer="/array", code="bad_indexes", message=str(error), hint="0-15:4,20")
        return
    if len(found) != spec.replicas:
        message = f"an array of {len(found)} values for {spec.replicas} tasks"
        yield Mistake(pointer="/replicas", code="wrong_size", message=message, hint=f"replicas {len(found)}")


def _each_line(spec: JobSpec) -> Iterator[Mistake]:
    if not spec.each_line:
        return
    if spec.is_gang:
        yield _not_in_a_gang("each_line")
    if spec.array:
        message = "a task has one value, of the array or of the file"
        yield Mistake(pointer="/each_line", code="unexpected", message=message, hint="leave array out")
    if spec.bundle is None:
        message = f"there is no bundle that holds {spec.each_line[:80]}"
        yield Mistake(pointer="/each_line", code="no_bundle", message=message, hint="store the file in a bundle")
    yield from _plain_path("/each_line", spec.each_line, "a file of the bundle", "params.txt")


def _max_parallel(spec: JobSpec) -> Iterator[Mistake]:
    if spec.max_parallel is None:
        return
    if spec.is_gang:
        yield _not_in_a_gang("max_parallel")
    yield from _amount("/max_parallel", spec.max_parallel, 1, MAX_REPLICAS)


def _not_in_a_gang(field: str) -> Mistake:
    message = f"the tasks of a gang run together, so it has no {field}"
    return Mistake(pointer=f"/{field}", code="unexpected", message=message, hint=f"leave {field} out")


def _bundle(spec: JobSpec) -> Iterator[Mistake]:
    if spec.bundle is not None and not SHA256.match(spec.bundle):
        message = f"{spec.bundle[:80]!r} is not a bundle digest"
        yield Mistake(pointer="/bundle", code="bad_digest", message=message, hint="64 hexadecimal digits (SHA-256)")


def _calls(spec: JobSpec) -> Iterator[Mistake]:
    calls = spec.calls
    if calls is None:
        return
    if not all(SHA256.match(digest) for digest in calls.digests):
        message = "a file is named by its digest"
        yield Mistake(pointer="/calls", code="bad_digest", message=message, hint="64 hexadecimal digits (SHA-256)")
    inside = [one for one in calls.segments if is_inline(one)]
    if len(inside) > 1 or not all(_is_small_file(one) for one in inside):
        message = f"only one file of arguments may be in the specification, in base64, of at most {INLINE_BYTES} bytes"
        yield Mistake(pointer="/calls/segments", code="too_large", message=message)
    ascending = all(before < after for before, after in pairwise((-1, *calls.firsts)))
    if len(calls.firsts) != len(calls.segments) or calls.firsts[:1] != (0,) or not ascending:
        message = "not one ascending index for each segment, from 0"
        yield Mistake(pointer="/calls/firsts", code="bad_indexes", message=message)
    yield from _amount("/calls/reuse", calls.reuse, 1, MAX_REPLICAS)
    if calls.reuse > 1 and spec.environment is not None and spec.environment.image:
        message = "calls in containers have a process each"
        yield Mistake(pointer="/calls/reuse", code="unexpected", message=message, hint="leave reuse or the image out")
    if calls.idle_s is not None:
        yield from _open(spec, calls)


def _is_small_file(segment: str) -> bool:
    try:
        return len(inlined(segment)) <= INLINE_BYTES
    except ValueError:
        return False


def _open(spec: JobSpec, calls: Calls) -> Iterator[Mistake]:
    """An open job: what refers to a fixed number of tasks cannot be beside further calls."""
    if not 1 <= (calls.idle_s or 0) <= MAX_IDLE_S:
        message = f"an open job is closed after 1 to {MAX_IDLE_S} s without a request"
        yield Mistake(pointer="/calls/idle_s", code="out_of_range", message=message)
    fixed = [name for name in ("indexes", "array", "each_line", "coscheduling") if getattr(spec, name)]
    fixed += ["after"] if any(one.each for one in spec.after) else []
    for name in fixed:
        message = "an open job has no fixed number of tasks, to which this refers"
        yield Mistake(pointer=f"/{name}", code="unexpected", message=message, hint=f"leave {name} out")


def _ports(spec: JobSpec) -> Iterator[Mistake]:
    if len(spec.ports) > MAX_PORTS:
        yield Mistake(pointer="/ports", code="too_many", message=f"at most {MAX_PORTS} ports")
    seen: set[str] = set()
    for number, port in enumerate(spec.ports[:MAX_PORTS]):
        if not _PORT.match(port):
            hint = "1 to 32 letters, digits, _ and -, starting with a letter"
            message = f"{port[:80]!r} is not a port name"
            yield Mistake(pointer=pointer_to("ports", number), code="bad_port", message=message, hint=hint)
        if port.upper() in seen:
            yield Mistake(pointer=pointer_to("ports", number), code="duplicate", message=f"{port!r} appears twice")
        seen.add(port.upper())


def _labels(spec: JobSpec) -> Iterator[Mistake]:
    if len(spec.labels) > MAX_LABELS:
        yield Mistake(pointer="/labels", code="too_many", message=f"at most {MAX_LABELS} labels")
    for key, value in spec.labels.items():
        pointer = pointer_to("labels", key)
        if not _LABEL.match(key):
            hint = "1 to 128 letters, digits and . _ / -, starting with a letter or digit"
            yield Mistake(pointer=pointer, code="bad_label", message=f"{key[:80]!r} is not a label key", hint=hint)
        if len(value) > constraints.MAX_TEXT:
            message = f"a label's value has at most {constraints.MAX_TEXT} characters"
            yield Mistake(pointer=pointer, code="too_long", message=message)


def _user(spec: JobSpec) -> Iterator[Mistake]:
    if spec.user and not _USER.match(spec.user):
        message = f"{spec.user[:80]!r} is not a valid user name"
        yield Mistake(pointer="/user", code="bad_user", message=message, hint="1 to 128 printable characters")


def _probe(spec: JobSpec) -> Iterator[Mistake]:
    if spec.probe is not None:
        message, hint = "a job has no probe", "create a deployment: its routes are probed"
        yield Mistake(pointer="/probe", code="not_a_route", message=message, hint=hint)


def _environment(spec: JobSpec) -> Iterator[Mistake]:
    wanted = spec.environment
    if wanted is None:
        return
    if wanted.packages and spec.bundle is None:
        message = f"there is no bundle that holds {wanted.packages}"
        yield Mistake(pointer="/environment/packages", code="no_bundle", message=message, hint="send a --workdir")
    if wanted.python and not _PYTHON.match(wanted.python):
        message = f"{wanted.python[:80]!r} is not a Python version"
        yield Mistake(pointer="/environment/python", code="bad_version", message=message, hint="3.12")
    if "\0" in wanted.setup:
        yield Mistake(pointer="/environment/setup", code="nul_byte", message="the command holds a NUL byte")
    if (size := len(wanted.setup.encode())) > MAX_COMMAND_BYTES:
        message = f"the command is {size} bytes long; the limit is {MAX_COMMAND_BYTES}"
        yield Mistake(pointer="/environment/setup", code="too_long", message=message, hint="put it into the bundle")
    if wanted.image:
        yield from _image(spec, wanted)


def _image(spec: JobSpec, wanted: Environment) -> Iterator[Mistake]:
    """Runtimes read the variables of a container from the lines of a file, each of which they limit to 64 KiB."""
    if not _IMAGE.match(wanted.image):
        message = f"{wanted.image[:80]!r} is not an image reference"
        yield Mistake(pointer="/environment/image", code="bad_image", message=message, hint="ghcr.io/lab/train:1")
    for name in ("packages", "setup", "python"):
        if getattr(wanted, name):
            message = f"an image brings its own packages and takes no {name}"
            yield Mistake(pointer=f"/environment/{name}", code="unexpected", message=message)
    for key, value in spec.env.items():
        if "\n" in value or "\r" in value or len(value.encode()) > _ENV_LINE:
            message = f"the value of {key[:80]} is not one line of at most {_ENV_LINE} bytes, as an image needs it"
            yield Mistake(pointer=pointer_to("env", key), code="not_a_line", message=message, hint="put it into a file")


def _output(spec: JobSpec) -> Iterator[Mistake]:
    if spec.output:
        yield from _plain_path("/output", spec.output, "a directory below the task's own", "out, or results/final")


def _preload(spec: JobSpec) -> Iterator[Mistake]:
    if len(spec.preload) > MAX_PRELOAD:
        message = f"{len(spec.preload)} modules; the limit is {MAX_PRELOAD}"
        yield Mistake(pointer="/preload", code="too_many", message=message)
    for number, name in enumerate(spec.preload[:MAX_PRELOAD]):
        if not all(part.isidentifier() for part in name.split(".")) or len(name) > _MODULE:
            message = f"{name[:80]!r} is not the name of a Python module"
            yield Mistake(pointer=pointer_to("preload", number), code="bad_module", message=message, hint="torch")
    if spec.preload and spec.environment is not None and spec.environment.image:
        message = "modules are preloaded on the host, so the job takes no image"
        yield Mistake(pointer="/preload", code="unexpected", message=message)
    if spec.preload and spec.calls is None and not is_cloneable(spec.command):
        message = "only `python FILE` and `python -m MODULE` have modules preloaded"
        yield Mistake(pointer="/preload", code="not_a_script", message=message, hint="python train.py")


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
        yield Mistake(pointer=f"/{field}", code="unexpected", message=message, hint=f"leave {field} out")


def is_cloneable(command: Sequence[str]) -> bool:
    """Whether a command is ``python FILE ...`` or ``python -m MODULE ...``, without other options of Python."""
    if len(command) < 2 or not _INTERPRETER.match(command[0].rpartition("/")[2]):
        return False
    return not command[1].startswith("-") or (command[1] == "-m" and len(command) > 2)


def _plain_path(pointer: str, path: str, kind: str, hint: str) -> Iterator[Mistake]:
    try:
        plain = archive_paths.names(path)
    except archive_paths.InvalidArchive as error:
        plain, message = (), str(error)
    else:
        message = f"{path!r} is not the plain path of {kind}"
    if "/".join(plain) != path or path.startswith("-") or not path.isprintable():
        yield Mistake(pointer=pointer, code="bad_path", message=message, hint=hint)


def _gates(spec: JobSpec) -> Iterator[Mistake]:
    if len(spec.after) > MAX_AFTER:
        message = f"a job waits for at most {MAX_AFTER} others"
        yield Mistake(pointer="/after", code="too_many", message=message, hint="wait for one job that waits for them")
    for place, wanted in enumerate(spec.after[:MAX_AFTER]):
        if not wanted.job:
            yield Mistake(pointer=pointer_to("after", place, "job"), code="empty", message="it names no job")
        if wanted.each and spec.is_gang:
            message = "the tasks of a gang start together: they do not wait one by one"
            pointer = pointer_to("after", place, "each")
            yield Mistake(pointer=pointer, code="unexpected", message=message, hint="leave each out")
    if spec.not_before:
        try:
            parse_moment(spec.not_before, 0)
        except ValueError as error:
            yield Mistake(pointer="/not_before", code="bad_time", message=str(error))
    if spec.singleton and not _SINGLETON.match(spec.singleton):
        message = f"{spec.singleton[:80]!r} is not a singleton key"
        hint = "1 to 128 printable characters without spaces"
        yield Mistake(pointer="/singleton", code="bad_key", message=message, hint=hint)


def _amount(pointer: str, value: int, low: int, high: int) -> Iterator[Mistake]:
    if not low <= value <= high:
        yield Mistake(pointer=pointer, code="out_of_range", message=f"{value} is not between {low} and {high}")


def _seconds(pointer: str, value: float | None) -> Iterator[Mistake]:
    if value is None:
        return
    if not math.isfinite(value) or not 0 < value <= MAX_SECONDS:
        message = f"{value} is not a time of more than 0 and at most {MAX_SECONDS} seconds"
        yield Mistake(pointer=pointer, code="out_of_range", message=message, hint="leave it out for never")


SpecRule = Callable[[JobSpec], Iterable[Mistake]]
_RULES: tuple[SpecRule, ...] = (
    _name,
    _command,
    _env,
    _replicas,
    _indexes,
    _array,
    _each_line,
    _max_parallel,
    _resources,
    _constraints,
    topology.validate_coscheduling,
    _retries,
    _timeouts,
    stop_admission.mistakes,
    _bundle,
    _calls,
    _ports,
    _labels,
    _user,
    _probe,
    _environment,
    _output,
    _gates,
    _preload,
    _terminal,
)
"""In the order in which their mistakes are shown."""
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
    """Each rule, and the fields that it reads of defaults. Where these have their defaults it goes the same way, and
    finds nothing.
    """
    plain, found = _Read(name="/x", command=("true",)), []
    for rule in _RULES:
        _READ.clear()
        list(rule(plain))
        found.append((frozenset(_READ), rule))
    return tuple(found)
