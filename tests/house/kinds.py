"""The import contract `kinds`: each module of Iris is pure, shell or io, and pure modules stay
pure.

The lists are the last section of `.importlinter`; `lint-imports` loads this class from there. An
entry names a module or a package; the entry nearest to a module decides, so a new file is what its
folder is. Between packages: import-linter's own contracts. Source: docs/ARCHITECTURE.md#modules.
"""

from collections.abc import Iterable, Mapping

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

KINDS = ("pure", "shell", "io")
Lists = Mapping[str, Iterable[str]]


def entry_of(module: str, entries: Iterable[str]) -> str | None:
    """The longest entry that is the module or a package it is in."""
    return max((e for e in entries if f"{module}.".startswith(f"{e}.")), key=len, default=None)


def kind_of(module: str, lists: Lists) -> str | None:
    """The kind of a module; None when neither it nor a package it is in is listed."""
    kinds = {entry: kind for kind, entries in lists.items() for entry in entries}
    entry = entry_of(module, kinds)
    return kinds[entry] if entry is not None else None


def mistakes(modules: Iterable[str], lists: Lists) -> list[str]:
    """Modules without a kind, entries listed twice or of no use, as sentences."""
    modules = sorted(modules)
    listed = [(entry, kind) for kind, entries in lists.items() for entry in entries]
    kinds = dict(listed)
    used = {entry_of(module, kinds) for module in modules}
    wrong = [
        f"{module} is of no kind: name its package in .importlinter"
        for module in modules
        if kind_of(module, lists) is None
    ]
    for entry, kind in sorted(listed):
        above = {e: k for e, k in listed if e != entry}
        if [e for e, _ in listed].count(entry) > 1:
            wrong.append(f"'{entry}' is listed twice")
        elif entry not in used:
            wrong.append(f"'{entry}' names no module")
        elif (nearest := entry_of(entry, above)) is not None and above[nearest] == kind:
            wrong.append(f"'{entry}' is {kind} already, as '{nearest}' is")
    return wrong


def impure(graph: ImportGraph, pure: set[str], doors: set[str]) -> list[str]:
    """What pure modules import and may not: one of ``doors``, or a module of Iris that is not
    pure.
    """
    own = {module for module in graph.modules if not graph.is_module_squashed(module)}
    wrong = []
    for module in sorted(pure):
        for target in sorted(graph.find_modules_directly_imported_by(module)):
            if (
                target in doors
                or target.split(".")[0] in doors
                or (target in own and target not in pure)
            ):
                lines = [
                    d["line_number"]
                    for d in graph.get_import_details(importer=module, imported=target)
                ]
                wrong.append(f"{module}:{','.join(map(str, sorted(lines)))} imports {target}")
    return wrong


class KindsContract(Contract):
    """Every module is of one kind; pure modules import only pure ones and none of ``doors``."""

    type_name = "kinds"

    pure = fields.ListField(subfield=fields.StringField())
    shell = fields.ListField(subfield=fields.StringField())
    io = fields.ListField(subfield=fields.StringField())
    doors = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        lists = {kind: list(getattr(self, kind)) for kind in KINDS}
        own = [module for module in graph.modules if not graph.is_module_squashed(module)]
        pure = {module for module in own if kind_of(module, lists) == "pure"}
        wrong = mistakes(own, lists) + impure(graph, pure, set(self.doors))
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for sentence in check.metadata["wrong"]:
            output.print_error(sentence)
