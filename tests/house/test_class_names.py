"""No class, type alias or type variable of the product has the name of another."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.house.repository import Source, sources, statements

SHARED = {
    "Job": "the SDK's Job is what users hold of the job that the state service records",
    "Deployment": "the SDK's Deployment likewise",
    "Executor": "the SDK's is named as those of concurrent.futures; the worker's executes what its agent decides",
}
"""Names that two things may have, each with the reason."""


def names(tree: ast.Module) -> Iterator[str]:
    """Classes wherever they stand, and capitalised names that a module assigns a type; single
    letters are anybody's.
    """
    for node in statements(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
    for node in tree.body:
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        for target in targets:
            if (
                isinstance(target, ast.Name)
                and target.id[:1].isupper()
                and target.id[1:2].islower()
            ):
                yield target.id


def shared(modules: Iterable[Source]) -> dict[str, list[str]]:
    """The modules of each name that more than one thing has."""
    found = defaultdict(list)
    for source in modules:
        for name in names(source.tree):
            found[name].append(source.module)
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def test_no_two_things_have_one_name():
    assert {
        name: modules for name, modules in shared(sources()).items() if name not in SHARED
    } == {}


def test_every_exception_is_needed():
    assert SHARED.keys() == shared(sources()).keys()


def test_a_second_class_of_a_name_would_be_found():
    one, other = sources()[:2]
    twice = [
        Source(one.path, "a", ast.parse("class Thing: ...")),
        Source(other.path, "b", ast.parse("Thing = int | str")),
    ]
    assert shared(tuple(twice)) == {"Thing": ["a", "b"]}


def test_a_class_is_found_in_every_kind_of_block():
    code = """
async def one():
    async with a:
        try:
            for b in c:
                class A: ...
            else:
                class B: ...
        except* d:
            class C: ...
        else:
            class D: ...
        finally:
            class E: ...
    while f:
        match g:
            case 1:
                class F: ...
    if h:
        class G: ...
    elif i:
        class H: ...
"""
    assert sorted(names(ast.parse(code))) == list("ABCDEFGH")
