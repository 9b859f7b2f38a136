"""A test's name is the behaviour it tests, in at most 70 characters."""

import ast

from tests.house.repository import texts

LONGEST = 70


def test_test_names_have_at_most_70_characters():
    long = {
        path.as_posix(): names
        for path, text in texts().items()
        if path.parts[0] == "tests" and path.suffix == ".py"
        if (names := [name for name in names_of_tests(text) if len(name) > LONGEST])
    }
    assert long == {}


def names_of_tests(text: str) -> list[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        node.name for node in ast.walk(ast.parse(text)) if isinstance(node, functions) and node.name.startswith("test_")
    ]
