"""The import contract `circles` detects import cycles."""

import grimp

from tests.house.circles import circle


def graph_of(*imports: tuple[str, str]) -> grimp.ImportGraph:
    graph = grimp.ImportGraph()
    for importer, target in imports:
        graph.add_import(importer=importer, imported=target)
    return graph


def test_a_module_that_imports_itself_by_way_of_others_is_named_with_them():
    found = circle(graph_of(("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")))
    assert found[0] == found[-1]
    assert set(found) == {"a", "b", "c"}


def test_modules_that_import_the_same_one_are_no_circle():
    assert circle(graph_of(("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))) == []
