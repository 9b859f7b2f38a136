"""The import contract `rooms`: each module of Iris is named in exactly one list, and pure rooms stay pure.

The lists are the last section of `.importlinter`; `lint-imports` loads this class from there. What is *not* here: the
rules between packages, which import-linter's own contracts state. Source: architecture.md section 1.
"""

from collections.abc import Iterable

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

KINDS = ("pure", "shell", "io")


def matches(module: str, pattern: str) -> bool:
    """Whether a list's entry names the module: itself, or with ``.*`` everything below."""
    if pattern.endswith(".*"):
        return module.startswith(pattern[:-1])
    return module == pattern


def homes(module: str, rooms: dict[str, Iterable[str]]) -> list[str]:
    """The entries that name a module, as ``kind: entry``; exactly one is wanted."""
    return [f"{kind}: {entry}" for kind, entries in rooms.items() for entry in entries if matches(module, entry)]


def misplaced(modules: Iterable[str], rooms: dict[str, Iterable[str]]) -> list[str]:
    """Modules with no room or several, and entries that name nothing, as sentences."""
    modules = sorted(modules)
    found = {module: homes(module, rooms) for module in modules}
    wrong = [
        f"{module} has no room: name it under pure, shell or io in .importlinter"
        for module, entries in found.items()
        if not entries
    ]
    wrong += [f"{module} has several rooms: {', '.join(e)}" for module, e in found.items() if len(e) > 1]
    used = {entry for entries in found.values() for entry in entries}
    listed = [f"{kind}: {entry}" for kind, entries in rooms.items() for entry in entries]
    return wrong + [f"'{entry}' names no module" for entry in sorted(listed) if entry not in used]


def impure(graph: ImportGraph, pure: set[str], doors: set[str]) -> list[str]:
    """What pure rooms import and may not: a door, or a room of Iris that is not pure."""
    own = {module for module in graph.modules if not graph.is_module_squashed(module)}
    wrong = []
    for module in sorted(pure):
        for target in sorted(graph.find_modules_directly_imported_by(module)):
            if target in doors or target.split(".")[0] in doors or (target in own and target not in pure):
                lines = [d["line_number"] for d in graph.get_import_details(importer=module, imported=target)]
                wrong.append(f"{module}:{','.join(map(str, sorted(lines)))} imports {target}")
    return wrong


class RoomsContract(Contract):
    """Every module has one room; pure rooms import only pure rooms and no door to the outside."""

    type_name = "rooms"

    pure = fields.ListField(subfield=fields.StringField())
    shell = fields.ListField(subfield=fields.StringField())
    io = fields.ListField(subfield=fields.StringField())
    doors = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        rooms = {kind: getattr(self, kind) for kind in KINDS}
        own = [module for module in graph.modules if not graph.is_module_squashed(module)]
        pure = {module for module in own if any(matches(module, entry) for entry in rooms["pure"])}
        wrong = misplaced(own, rooms) + impure(graph, pure, set(self.doors))
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for sentence in check.metadata["wrong"]:
            output.print_error(sentence)
