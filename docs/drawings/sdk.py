"""docs/sdk.md: the public classes of `iris` and `iris.testing`, from their signatures and
docstrings.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any, TypedDict

import iris
import iris.testing
from drawings.docstrings import definition, prose
from drawings.markdown import document, grid
from iris.client import client
from iris_core.spec import option_table
from iris_core.spec.option_table import DeployOptions, JobOptions, PoolOptions, TaskOptions, rows_of

EXPLAINED = """\
`from iris import ...`. `AsyncClient` has the methods of `Client` as coroutines. What a method returns with a name that
ends in `View` is an object of the [HTTP API](http.md#objects), with the same fields. The [options](#taskoptions) of
`run`, `map` and `deploy` are keyword arguments."""

OPTIONS: tuple[tuple[Any, Any], ...] = (
    (TaskOptions, object),
    (JobOptions, TaskOptions),
    (DeployOptions, TaskOptions),
    (PoolOptions, object),
)
"""Each with the one whose keyword arguments it has besides its own."""

TOLD = """\
The environment of a task holds its job's variables and these; a member of a gang has
[more](gangs.md#what-a-member-is-told)."""

VARIABLES = {
    "IRIS_JOB": "the name of its job",
    "IRIS_TASK": "its name: that of the job, and its index",
    "IRIS_TASK_INDEX": "its index, from 0",
    "IRIS_NUM_TASKS": "how many tasks its job has",
    "IRIS_PROJECT": "the path of the project that its job is in",
    "IRIS_ATTEMPT": "0, and one more each time the task starts again",
    "IRIS_ARRAY_INDEX": "of an array: its value",
    "IRIS_ARRAY_VALUE": "of a job with a task for each line: its line",
    "IRIS_WORKER_ID": "the host",
    "IRIS_DEVICE_VARIANT": "with a device: its variant",
    "IRIS_PORT_<NAME>": "the port of that name",
    "IRIS_GATEWAY_URL": "where the gateway answers; the client finds it there",
    "IRIS_CA": "the authority of the gateway's certificate, in PEM, if `ca_file` of `[worker]` names one",
    "IRIS_TOKEN": "the token of the attempt, unless its job brings one",
    "IRIS_TOKEN_FILE": "a file with the present token, which is replaced before it expires",
    "IRIS_WORKDIR": "the directory in which the command starts",
    "IRIS_OUTPUT": "with kept output: the directory that is kept",
    "IRIS_ERROR_FILE": "a file whose text becomes the error of a failed attempt",
    "IRIS_NOTICE_FILE": "a file that is there once the task is given a notice before it is stopped",
    "OMP_NUM_THREADS": "its processors, at least 1, unless its job sets it; so are `MKL_`, `OPENBLAS_`, `BLIS_` and "
    "`NUMEXPR_NUM_THREADS`",
    "IRIS_PROBE": "set for the command of a probe",
    "IRIS_EXEC": "set for a command that `iris exec` runs",
}


class _Bare(str):
    """An annotation that is written without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def signature(function: Any) -> str:
    """A signature as it stands in the source, without ``self``."""
    found = inspect.signature(function)
    shown = [
        parameter.replace(annotation=_bare(parameter.annotation))
        for parameter in found.parameters.values()
        if parameter.name != "self"
    ]
    return str(found.replace(parameters=shown, return_annotation=_bare(found.return_annotation)))


def _bare(annotation: Any) -> Any:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class and of its bases within `iris`, those of the
    class first.
    """
    seen: set[str] = set()
    for part in kind.__mro__:
        for name, value in vars(part).items() if part.__module__.startswith("iris.") else ():
            if (
                not name.startswith("_")
                and name not in seen
                and (isinstance(value, property) or callable(value))
            ):
                seen.add(name)
                yield name, value


def member_entry(name: str, value: Any) -> str:
    """One bullet: the signature and what its docstring says."""
    if isinstance(value, property):
        return definition(f"`{name}`", prose(value.__doc__))
    start = "async " if inspect.iscoroutinefunction(value) else ""
    return definition(f"`{start}{name}{signature(value)}`", prose(value.__doc__))


def class_section(kind: type) -> Iterator[str]:
    """One class: how it is made, what it is, its members."""
    yield f"## {kind.__name__}"
    if issubclass(kind, Exception):
        yield f"Exception, a `{kind.__bases__[0].__name__}`."
    else:
        yield f"```python\n{kind.__name__}{signature(kind.__init__)}\n```".replace(" -> None", "")
    yield from prose(kind.__doc__)
    if entries := [member_entry(name, value) for name, value in members(kind)]:
        yield "Members:"
        yield from entries


def options_section(kind: Any, base: Any) -> Iterator[str]:
    """The keyword arguments of a method, with their types."""
    yield f"## {kind.__name__}"
    yield from prose(kind.__doc__)
    inherited = inspect.get_annotations(base)
    own = {
        name: hint for name, hint in inspect.get_annotations(kind).items() if name not in inherited
    }
    words = {
        row.name: f": {row.help}" for row in rows_of(kind, base if base is not object else _Nothing)
    }
    yield "\n".join(
        f"* `{name}`: `{_plain_type(hint)}`{words.get(name, '')}" for name, hint in own.items()
    )
    if inherited:
        yield f"And those of [{base.__name__}](#{base.__name__.lower()})."


_SHORT = ("Text", "Number", "Time", "Conditions", "Values")
"""Types that the table of options names for itself."""


class _Nothing(TypedDict):
    pass


def _plain_type(hint: Any) -> str:
    """A type as it stands in the source, without what is said beside it."""
    text = getattr(hint, "__forward_arg__", str(hint))
    node: Any = ast.parse(text, mode="eval").body
    plain = ast.unparse(node.slice.elts[0]) if text.startswith("Annotated[") else text
    return (
        re.sub(r"[\w.]+\.(\w+)", r"\1", repr(getattr(option_table, plain)))
        if plain in _SHORT
        else plain
    )


def sdk_document() -> str:
    """The client and its handles, the same for asyncio, what they raise, the options, and the
    fixture for tests.
    """
    public = [getattr(iris, name) for name in iris.__all__ if not name.startswith("__")]
    ranks = {
        kind: (issubclass(kind, Exception), kind.__name__.startswith("Async")) for kind in public
    }
    parts = prose(client.__doc__)[:2]
    for kind in sorted(public, key=lambda kind: ranks[kind]):
        parts += class_section(kind)
    for options, base in OPTIONS:
        parts += options_section(options, base)
    parts += ["## iris.testing", *prose(iris.testing.__doc__)[:4]]
    for name in iris.testing.__all__:
        parts += [
            text.replace("## ", "### ", 1) for text in class_section(getattr(iris.testing, name))
        ]
    rows = grid(
        ("variable", "what it holds"), ((f"`{name}`", said) for name, said in VARIABLES.items())
    )
    parts += ["## Variables of a task", TOLD, rows]
    return document("Python SDK", "the docstrings of the package iris", EXPLAINED, *parts)
