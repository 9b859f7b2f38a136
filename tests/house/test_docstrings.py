"""Docstrings name only attributes that exist."""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache

from tests.house.repository import sources, statements


@cache
def class_definitions() -> tuple[ast.ClassDef, ...]:
    return tuple(
        node
        for source in sources()
        for node in statements(source.tree)
        if isinstance(node, ast.ClassDef)
    )


def names_in(nodes: list[ast.stmt]) -> Iterator[str]:
    """The names that a class body binds, and those that its methods assign or read on ``self``."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        for part in ast.walk(node):
            if (
                isinstance(part, ast.Attribute)
                and isinstance(part.value, ast.Name)
                and part.value.id == "self"
            ):
                yield part.attr
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id


def attributes(definition: ast.ClassDef) -> set[str]:
    """Those of the class and of the bases that are classes of the product."""
    found = set(names_in(definition.body))
    bases = {ast.unparse(base).split("[")[0].rpartition(".")[2] for base in definition.bases}
    for other in class_definitions():
        if other.name in bases and other is not definition:
            found |= attributes(other)
    return found


def documented(definition: ast.ClassDef) -> set[str]:
    """The names in the list of attributes of a class's docstring."""
    _, _, listed = inspect.cleandoc(ast.get_docstring(definition) or "").partition("Attributes:\n")
    entries = re.split(r"\n(?=    \S)", listed.split("\n\n")[0])
    keys = [
        key
        for entry in entries
        for key in re.findall(r"(?:^|(?<=\. ))([a-z_, ]+): ", " ".join(entry.split()))
    ]
    return {name for key in keys for name in re.split(r",\s*", key) if name.isidentifier()}


def test_every_documented_attribute_exists():
    missing = {each.name: documented(each) - attributes(each) for each in class_definitions()}
    assert {name: some for name, some in missing.items() if some} == {}


def test_an_attribute_that_does_not_exist_is_noticed():
    doc = "A door.\n\n    Attributes:\n        bell: rings. open: whether.\n    "
    source = f'class Door:\n    """{doc}"""\n    open = 1'
    (definition,) = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    assert documented(definition) - attributes(definition) == {"bell"}
