"""A test's name is the behaviour it tests, in at most 70 characters."""

import re

from tests.house.repository import texts

LONGEST = 70
_TEST = re.compile(r"^ *(?:async )?def (test_\w*)", re.MULTILINE)


def test_test_names_have_at_most_70_characters():
    long = {
        path.as_posix(): names
        for path, text in texts().items()
        if path.parts[0] == "tests" and path.suffix == ".py"
        if (names := [name for name in names_of_tests(text) if len(name) > LONGEST])
    }
    assert long == {}


def test_functions_methods_and_coroutines_are_found():
    text = "def test_a(): ...\nclass Test:\n    async def test_b(self): ...\ndef no_test(): ...\nx = test_c()\n"
    assert names_of_tests(text) == ["test_a", "test_b"]


def names_of_tests(text: str) -> list[str]:
    """Those of tests in texts too; to parse all tests took seconds of CPU."""
    return _TEST.findall(text)
