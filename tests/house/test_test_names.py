"""A test's name is the behaviour it tests, in at most 70 characters."""

import ast

from tests.house.repository import texts

LONGEST = 70
EXEMPT = frozenset(
    {
        "tests/integration/test_maps.py",
        "tests/integration/test_worker.py",
        "tests/unit/cli/test_cli.py",
        "tests/unit/cli/test_looking.py",
        "tests/unit/cli/test_programs.py",
        "tests/unit/client/test_map_progress.py",
        "tests/unit/core/test_topology.py",
        "tests/unit/doctor/test_checks.py",
        "tests/unit/gateway/test_jobs.py",
        "tests/unit/gateway/test_refusals.py",
        "tests/unit/scheduler/test_changed_jobs.py",
        "tests/unit/scheduler/test_levels.py",
        "tests/unit/state/test_capacity_warnings.py",
        "tests/unit/state/test_set_aside.py",
        "tests/unit/state/test_update.py",
        "tests/unit/worker/test_agent.py",
    }
)
"""Files whose longer names are still to be shortened; none is added."""


def test_test_names_have_at_most_70_characters():
    long = {
        path.as_posix(): names
        for path, text in texts().items()
        if path.parts[0] == "tests" and path.suffix == ".py"
        if (names := [name for name in names_of_tests(text) if len(name) > LONGEST])
    }
    assert {path: names for path, names in long.items() if path not in EXEMPT} == {}
    assert long.keys() >= EXEMPT, "these names are short by now"


def names_of_tests(text: str) -> list[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        node.name for node in ast.walk(ast.parse(text)) if isinstance(node, functions) and node.name.startswith("test_")
    ]
