"""libs/iris/iris/client/async_client.py: `Client`, `Job` and `Deployment` with coroutines, from
their source.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from textwrap import indent
from types import ModuleType

from iris.client import async_base, client, deployments, fleet, jobs, notify, projects
from iris.client.async_base import AsyncCalls, DeploymentWaits, JobWaits
from iris.client.http import api

PLACE = "libs/iris/iris/client/async_client.py"
HANDLES = {"Job": "AsyncJob", "Deployment": "AsyncDeployment"}
CLASSES: tuple[tuple[str, str, type, tuple[ModuleType, ...], str], ...] = (
    (
        "AsyncClient",
        "Client",
        AsyncCalls,
        (client, fleet, notify, projects, api),
        "A connection to one gateway, for asyncio",
    ),
    ("AsyncJob", "Job", JobWaits, (jobs,), "One job, for asyncio"),
    (
        "AsyncDeployment",
        "Deployment",
        DeploymentWaits,
        (deployments,),
        "One deployment, for asyncio",
    ),
)
"""Name, the class it follows, its base with what is written by hand, the modules of that class and
its bases.
"""
UNLISTED = frozenset(
    {
        "change",
        "changed_pool",
        "ending",
        "gave_up",
        "get",
        "is_end",
        "is_ready_within",
        "login_link",
        "open_logs",
        "pages",
        "post",
    }
    | {"send_bundle", "spec", "stream", "unopened_stream"}
)
"""What the handles and the command line use among themselves; `Client.spec` needs no request."""
HEAD = '''"""`AsyncClient`: the methods of `Client` as coroutines.

Drawn by `make draw` from `client.client`, `client.jobs` and `client.deployments`; change those, or `client.async_base`.
"""

from __future__ import annotations
'''


def async_client_source() -> str:
    """The module, formatted."""
    bodies = [_class_source(*row) for row in CLASSES]
    text = "\n\n".join([HEAD, *_imports(ast.parse("\n\n".join(bodies))), *bodies])
    for command in (["check", "--quiet", "--fix", "--select", "I,F401"], ["format", "--quiet"]):
        done = [
            sys.executable,
            "-m",
            "ruff",
            *command,
            "--stdin-filename",
            "libs/iris/iris/client/async_client.py",
            "-",
        ]
        text = subprocess.run(done, input=text, capture_output=True, text=True, check=True).stdout
    return text


def _class_source(
    name: str, followed: str, base: type, modules: tuple[ModuleType, ...], about: str
) -> str:
    head = f'class {name}({base.__name__}):\n    """{about}. Arguments and errors as of `{followed}`."""\n'
    return "\n".join(
        [head, *(_method(node, followed) for node in _methods(modules) if _is_drawn(node, base))]
    )


def _methods(modules: tuple[ModuleType, ...]) -> Iterator[ast.FunctionDef]:
    """The methods of the handle in each module, the class of the first module first."""
    for module in modules:
        tree = ast.parse(inspect.getsource(module))
        definition = next(node for node in tree.body if isinstance(node, ast.ClassDef))
        yield from (node for node in definition.body if isinstance(node, ast.FunctionDef))


def _is_drawn(node: ast.FunctionDef, base: type) -> bool:
    return not (node.name.startswith("_") or node.name in UNLISTED or hasattr(base, node.name))


def _method(node: ast.FunctionDef, followed: str) -> str:
    """One method in its source, by what the synchronous one returns."""
    assert node.returns is not None, node.name
    returns = ast.unparse(node.returns)
    runner = "self" if followed == "Client" else "self._client"
    given = ", ".join(_passed(node.args))
    sync = f"self.sync.{node.name}"
    if any(ast.unparse(decorator) == "property" for decorator in node.decorator_list):
        return _written(node, "@property\ndef", returns, followed, f"return {sync}")
    if returns.startswith("Iterator["):
        return _written(
            node, "def", f"Async{returns}", followed, f"return {runner}.iterate({sync}({given}))"
        )
    called = (
        f"await {runner}.call(lambda: {sync}({given}))" if given else f"await {runner}.call({sync})"
    )
    if returns in HANDLES:
        return _written(
            node,
            "async def",
            HANDLES[returns],
            followed,
            f"return {HANDLES[returns]}({runner}, {called})",
        )
    return _written(node, "async def", returns, followed, f"return {called}")


def _written(node: ast.FunctionDef, kind: str, returns: str, followed: str, body: str) -> str:
    head = f"{kind} {node.name}({ast.unparse(node.args)}) -> {returns}:"
    return indent(f'{head}\n    """As `{followed}.{node.name}`."""\n    {body}\n', "    ")


def _passed(arguments: ast.arguments) -> Iterator[str]:
    yield from (one.arg for one in [*arguments.posonlyargs, *arguments.args] if one.arg != "self")
    if arguments.vararg is not None:
        yield f"*{arguments.vararg.arg}"
    yield from (f"{one.arg}={one.arg}" for one in arguments.kwonlyargs)
    if arguments.kwarg is not None:
        yield f"**{arguments.kwarg.arg}"


def _imports(tree: ast.Module) -> list[str]:
    """The imports of every name that the classes use, from where the followed modules have them."""
    where = {"AsyncIterator": "from collections.abc import AsyncIterator"}
    for module in (async_base, deployments, jobs, api, fleet, notify, projects, client):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                where |= {one.name: f"from {node.module} import {one.name}" for one in node.names}
            elif isinstance(node, ast.Import):
                where |= {one.name: f"import {one.name}" for one in node.names}
        where |= {name: f"from {module.__name__} import {name}" for name in _defined(module)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {
        *HANDLES.values(),
        "AsyncClient",
    }
    return sorted({where[name] for name in used if name in where})


def _defined(module: ModuleType) -> Iterator[str]:
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
