"""How many files of the product a new field of a job, a new view, a new command and a new effect
need, until all checks pass.

Each is made in a copy of the tree by the smallest patch; drawn files are drawn. With one file of
the patch left out, some check fails, so none is counted that is not needed. What a field does where
tasks are placed or run comes on top.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.house.repository import ROOT

CHECKS = """
import draw
from tests.house import test_completeness
from tests.unit.core.test_spec_facts import test_each_field_of_a_specification_has_a_fact

draw.main()
assert draw.stale() == []
test_each_field_of_a_specification_has_a_fact()
for name, check in vars(test_completeness).items():
    if name.startswith("test_each_") and check.__module__ == test_completeness.__name__:
        check()
"""


@dataclass(frozen=True)
class Dummy:
    """Something new. ``patch``: by file, a text that is there once and what comes before it."""

    patch: dict[str, tuple[tuple[str, str], ...]]
    files: int
    """Of the product."""

    @property
    def product(self) -> list[str]:
        return [name for name in self.patch if name.startswith(("libs/", "services/"))]


_IMPORT_DUMMY = "from iris_core.messages.gateway_state import Dummy\n"
DUMMIES = {
    "field": Dummy(
        {
            "libs/iris_core/iris_core/spec/jobs.py": (
                ("    @property\n    def index_set", "    dummy: int = 0\n\n"),
            ),
            "libs/iris_core/iris_core/views/spec_facts.py": (
                (
                    "    if spec.ports:\n",
                    '    if spec.dummy:\n        yield "dummy", str(spec.dummy)\n',
                ),
            ),
            "libs/iris_core/iris_core/spec/option_table.py": (
                ("    protect: Annotated[", '    dummy: Annotated[int, Option("A dummy.")]\n'),
            ),
            "tests/unit/core/test_spec_facts.py": (
                ('    "max_parallel": 2,\n', '    "dummy": 1,\n'),
            ),
        },
        files=3,
    ),
    "view": Dummy(
        {
            "libs/iris_core/iris_core/views/queries.py": (
                (
                    "class JobQuery(",
                    'class DummyQuery(ViewQuery, frozen=True):\n    """A dummy."""\n\n\n',
                ),
            ),
            "services/state/iris_state/views/__init__.py": (
                ("    q.OverviewQuery:", "    q.DummyQuery: lambda ledger, _: {},\n"),
            ),
            "services/gateway/iris_gateway/api/cluster.py": (
                (
                    '    view(\n        "/v1/overview"',
                    '    view("/v1/dummy", q.DummyQuery, "Show a dummy", Answers("It.", dict[str, str])),\n',
                ),
            ),
        },
        files=3,
    ),
    "command": Dummy(
        {
            "libs/iris_core/iris_core/messages/gateway_state.py": (
                (
                    "class DeployCommand(",
                    'class Dummy(ServiceMessage, frozen=True):\n    """A dummy."""\n\n'
                    '    does: ClassVar[str] = "do nothing"\n    caller: Caller\n'
                    "    request_id: str\n    requested_ms: int\n\n\n",
                ),
                ("    | DeployCommand\n", "    | Dummy\n"),
            ),
            "libs/iris_core/iris_core/subjects.py": (
                (
                    '    Subject(CMD_QUEUE, MessagePattern.REQUEST, "gateway"',
                    '    Subject("iris.cmd.dummy", MessagePattern.REQUEST, "gateway", '
                    '"state (leader)", "Dummy"),\n',
                ),
            ),
            "services/state/iris_state/commands/table.py": (
                (
                    "    HoldQueue: CommandKind(",
                    '    Dummy: CommandKind(execute=lambda _, __: ("ok", b"{}"), '
                    "audit=lambda _, __: None),\n",
                ),
                ("    GrowJob,\n    HoldQueue,\n", "    Dummy,\n"),
            ),
            "services/gateway/iris_gateway/api/queue_holds.py": (
                (
                    "async def hold(",
                    "async def dummy(call: Call) -> Response:\n"
                    "    return await call.command(Dummy(call.caller, *UNSENT))\n\n\n",
                ),
                ("from iris_core.messages.gateway_state import HoldQueue", _IMPORT_DUMMY),
            ),
        },
        files=4,
    ),
    "effect": Dummy(
        {
            "services/state/iris_state/effects/kinds.py": (
                (
                    "@dataclass(frozen=True, slots=True)\nclass Raised",
                    "@dataclass\nclass Dummy:\n    pass\n\n\n",
                ),
                ("    | Raised\n", "    | Dummy\n"),
            ),
            "services/state/iris_state/machine/machine.py": (
                (
                    "self.round.effects.append(SnapshotTo(",
                    "self.round.effects.append(Dummy())\n            ",
                ),
                ("    SnapshotTo,\n", "    Dummy,\n"),
            ),
            "services/state/iris_state/replication/leader.py": (
                ("        if events := output.of(Publication)", "        output.of(Dummy)\n"),
                ("    MirrorDelta,\n    OrderTo,\n", "    Dummy,\n"),
            ),
        },
        files=3,
    ),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the checks read, with its compiled files, but those that are being written."""
    root = tmp_path_factory.mktemp("spread")
    for name in (
        "libs",
        "services",
        "docs",
        "deploy",
        "benchmarks",
        "tests/house",
        "tests/unit/core",
    ):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns(".*", "*.pyc.*"))
    shutil.copy(ROOT / ".gitignore", root)
    return root


@pytest.fixture
def patched(copy: Path) -> Iterator[Path]:
    """The copy; what a test changes in it is as it was afterwards."""
    yield copy
    for dummy in DUMMIES.values():
        for name in dummy.patch:
            shutil.copy2(ROOT / name, copy / name)


def apply(dummy: Dummy, root: Path, left_out: str = "") -> None:
    for name in dummy.patch.keys() - {left_out}:
        text = (root / name).read_text()
        for place, before in dummy.patch[name]:
            assert text.count(place) == 1, (
                f"{name} has no longer one {place!r}: the patch of the dummy is stale"
            )
            text = text.replace(place, before + place)
        (root / name).write_text(text)


def failure(root: Path) -> str:
    """Why the checks fail in the copy; empty when they pass."""
    packages = [
        str(path) for base in ("libs", "services") for path in sorted((root / base).iterdir())
    ]
    done = subprocess.run(
        [sys.executable, "-c", CHECKS],
        cwd=root,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(root), str(root / "docs"), *packages]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr


@pytest.mark.parametrize("name", DUMMIES)
def test_a_dummy_needs_as_many_files_as_stated(name: str, patched: Path):
    dummy = DUMMIES[name]
    apply(dummy, patched)
    assert failure(patched) == ""
    assert len(dummy.product) == dummy.files


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "left_out"), [(name, one) for name, it in DUMMIES.items() for one in it.product]
)
def test_no_file_of_a_dummy_can_be_left_out(name: str, left_out: str, patched: Path):
    apply(DUMMIES[name], patched, left_out)
    assert failure(patched) != ""
