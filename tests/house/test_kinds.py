"""The import contract `kinds` detects modules of the wrong kind."""

import ast
import sys
from configparser import ConfigParser

import grimp

from tests.house.kinds import KINDS, impure, kind_of, mistakes
from tests.house.repository import ROOT, imported, sources


def graph_of(*imports: tuple[str, str]) -> grimp.ImportGraph:
    graph = grimp.ImportGraph()
    for name in ("iris_state", "iris_state.ledger", "iris_state.service.service"):
        graph.add_module(name)
    for name in ("time", "sortedcontainers"):
        graph.add_module(name, is_squashed=True)
    for importer, target in imports:
        graph.add_import(
            importer=importer, imported=target, line_number=3, line_contents="import it"
        )
    return graph


def test_a_new_file_is_what_its_folder_is_unless_it_is_named():
    lists = {
        "pure": ["iris_state"],
        "io": ["iris_state.admin"],
        "shell": ["iris_state.admin.backup"],
    }
    modules = [
        "iris_state.ledger",
        "iris_state.admin",
        "iris_state.admin.words",
        "iris_state.admin.backup",
    ]
    assert [kind_of(module, lists) for module in modules] == ["pure", "io", "io", "shell"]
    assert mistakes(modules, lists) == []


def test_a_new_package_must_be_of_a_kind():
    assert mistakes(["iris_state", "iris_statement"], {"pure": ["iris_state"]}) == [
        "iris_statement is of no kind: name its package in .importlinter"
    ]


def test_an_entry_that_says_nothing_new_is_refused():
    assert mistakes(["iris_state.ledger"], {"pure": ["iris_state", "iris_state.ledger"]}) == [
        "'iris_state' names no module",
        "'iris_state.ledger' is pure already, as 'iris_state' is",
    ]
    assert (
        mistakes(["iris_state"], {"pure": ["iris_state"], "io": ["iris_state"]})[0]
        == "'iris_state' is listed twice"
    )


def test_an_entry_whose_file_is_gone_is_refused():
    assert mistakes(["iris_state"], {"pure": ["iris_state"], "io": ["iris_state.old"]}) == [
        "'iris_state.old' names no module"
    ]


def test_a_pure_module_may_not_look_at_the_clock():
    graph = graph_of(("iris_state.ledger", "time"), ("iris_state.service.service", "time"))
    assert impure(graph, {"iris_state.ledger"}, {"time"}) == ["iris_state.ledger:3 imports time"]


def test_a_pure_module_may_not_import_the_shell():
    graph = graph_of(
        ("iris_state.ledger", "iris_state.service.service"),
        ("iris_state.ledger", "sortedcontainers"),
    )
    assert impure(graph, {"iris_state.ledger"}, {"time"}) == [
        "iris_state.ledger:3 imports iris_state.service.service"
    ]


def lists() -> dict[str, list[str]]:
    parser = ConfigParser()
    parser.read(ROOT / ".importlinter")
    return {kind: parser["importlinter:contract:kinds"][kind].split() for kind in KINDS}


def test_there_are_modules_of_every_kind():
    assert all(lists().values())


def test_no_pure_module_asks_for_the_time_through_datetime():
    clocks, listed = {"now", "utcnow", "today"}, lists()
    asked = [
        f"{source.path}:{node.lineno}"
        for source in sources()
        if kind_of(source.module, listed) == "pure"
        for node in source.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in clocks
        if isinstance(node.func.value, ast.Name) and node.func.value.id in {"datetime", "date"}
    ]
    assert asked == []


def test_the_decisions_stand_on_two_libraries():
    core = [source for source in sources() if source.module.split(".")[0] == "iris_core"]
    used = set().union(*(imported(source.tree) for source in core))
    assert used - set(sys.stdlib_module_names) <= {"iris_core", "msgspec", "sortedcontainers"}
