"""The import contract `circles`: no module of Iris imports itself by way of others, not even for
its annotations.

`lint-imports` loads this class from `.importlinter`. Source: docs/ARCHITECTURE.md#modules.
"""

from graphlib import CycleError, TopologicalSorter

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output


def circle(graph: ImportGraph) -> list[str]:
    """The modules of one circle, each imported by the one behind it, the first also at the end;
    empty without any.
    """
    try:
        TopologicalSorter(
            {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
        ).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


class CirclesContract(Contract):
    """No module imports itself by way of others; imports under TYPE_CHECKING and in functions
    count.
    """

    type_name = "circles"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        found = circle(graph)
        return ContractCheck(kept=not found, metadata={"circle": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        output.print_error(" is imported by ".join(check.metadata["circle"]))
