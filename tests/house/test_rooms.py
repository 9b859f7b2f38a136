"""The import contract `rooms` notices what it is there for."""

import ast
import sys
from configparser import ConfigParser

import grimp

from tests.house.repository import ROOT, imported, sources
from tests.house.rooms import KINDS, impure, matches, misplaced


def graph_of(*imports: tuple[str, str]) -> grimp.ImportGraph:
    graph = grimp.ImportGraph()
    for name in ("iris_state", "iris_state.ledger", "iris_state.service"):
        graph.add_module(name)
    for name in ("time", "sortedcontainers"):
        graph.add_module(name, is_squashed=True)
    for importer, target in imports:
        graph.add_import(importer=importer, imported=target, line_number=3, line_contents="import it")
    return graph


def test_a_new_file_must_be_given_a_room():
    assert misplaced(["iris_state.ledger", "iris_state.new"], {"pure": ["iris_state.ledger"]}) == [
        "iris_state.new has no room: name it under pure, shell or io in .importlinter"
    ]


def test_a_file_has_one_room_only():
    assert misplaced(["iris_state.ledger"], {"pure": ["iris_state.ledger"], "io": ["iris_state.*"]}) == [
        "iris_state.ledger has several rooms: pure: iris_state.ledger, io: iris_state.*"
    ]


def test_a_room_whose_file_is_gone_is_struck_off():
    assert misplaced(["iris_state"], {"pure": ["iris_state", "iris_state.old"]}) == [
        "'pure: iris_state.old' names no module"
    ]


def test_a_pure_room_may_not_look_at_the_clock():
    graph = graph_of(("iris_state.ledger", "time"), ("iris_state.service", "time"))
    assert impure(graph, {"iris_state.ledger"}, {"time"}) == ["iris_state.ledger:3 imports time"]


def test_a_pure_room_may_not_import_the_shell():
    graph = graph_of(("iris_state.ledger", "iris_state.service"), ("iris_state.ledger", "sortedcontainers"))
    assert impure(graph, {"iris_state.ledger"}, {"time"}) == ["iris_state.ledger:3 imports iris_state.service"]


def pure_entries() -> list[str]:
    parser = ConfigParser()
    parser.read(ROOT / ".importlinter")
    return parser["importlinter:contract:rooms"]["pure"].split()


def test_the_table_has_every_kind_of_room():
    parser = ConfigParser()
    parser.read(ROOT / ".importlinter")
    assert all(parser["importlinter:contract:rooms"][kind].split() for kind in KINDS)


def test_no_pure_room_asks_for_the_time_through_datetime():
    clocks = {"now", "utcnow", "today"}
    asked = [
        f"{source.path}:{node.lineno}"
        for source in sources()
        if any(matches(source.module, entry) for entry in pure_entries())
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in clocks
        if isinstance(node.func.value, ast.Name) and node.func.value.id in {"datetime", "date"}
    ]
    assert asked == []


def test_the_decisions_stand_on_two_libraries():
    core = [source for source in sources() if source.module.split(".")[0] == "iris_core"]
    used = set().union(*(imported(source.tree) for source in core))
    assert used - set(sys.stdlib_module_names) <= {"iris_core", "msgspec", "sortedcontainers"}
