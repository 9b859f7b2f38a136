"""Names and prose use the field's terms: retired words do not return."""

import ast
import re
from collections.abc import Iterable, Iterator

from tests.house.repository import ROOT, sources

RETIRED = {
    "alarm": "timer",
    "beat": "heartbeat",
    "bury": "refuse",
    "deaf": "unreachable",
    "dice": "rng",
    "herald": "reporter",
    "hopeless": "unschedulable",
    "hunt": "victim search",
    "logbook": "log formats",
    "obey": "execute",
    "occurrence": "event",
    "patience": "timeout or retry",
    "retrospect": "event history",
    "roster": "process store",
    "sealed": "compacted",
    "setback": "backoff",
    "siege": "gang preemption",
    "spout": "log shipper",
    "straight": "direct",
    "stranger": "orphan",
    "teller": "publisher",
    "told": "published or reported",
    "untold": "unpublished or unreported",
    "wish": "command",
    "workshop": "executor",
}
RETIRED_PHRASES = {
    "ails": "is wrong with",
    "at one stroke": "atomically",
    "held against": "compared with",
    "in the midst": "within",
    "is no news": "is unchanged",
    "lets go": "releases or closes",
    "spoken of": "named",
    "what is wanted of": "the task of",
}
CONFIGURATION = "docs/configuration.md"


def words(name: str) -> set[str]:
    """The words of an identifier, as written and without a plural's ending."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]
    return {part.removesuffix(ending) for part in parts for ending in ("", "s", "es")}


def names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Every name that some nodes define or write to."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def retired(found: Iterator[str]) -> list[str]:
    return sorted(
        {f"{name}: {RETIRED[word]}" for name in found for word in words(name) & RETIRED.keys()}
    )


def retired_phrases(text: str) -> list[str]:
    """The phrases in a module's docstrings, comments and messages, also across the end of a
    line.
    """
    folded = re.sub(r"[\s#]+", " ", text)
    return [
        f"{phrase}: {term}"
        for phrase, term in RETIRED_PHRASES.items()
        if re.search(rf"\b{phrase}\b", folded)
    ]


def test_no_module_has_a_retired_name():
    assert retired(part for source in sources() for part in source.module.split(".")) == []


def test_nothing_in_the_code_has_a_retired_name():
    assert [
        f"{source.path} {name}" for source in sources() for name in retired(names(source.nodes))
    ] == []


def test_no_module_has_a_retired_phrase():
    found = {source.path: retired_phrases((ROOT / source.path).read_text()) for source in sources()}
    assert {path: phrases for path, phrases in found.items() if phrases} == {}


def test_no_setting_has_a_retired_name():
    keys = re.findall(r"(?m)^\| `(\w+)` \|", (ROOT / CONFIGURATION).read_text())
    assert len(keys) > 50
    assert retired(iter(keys)) == []


def test_a_retired_name_is_noticed_with_the_term_to_use():
    code = "_HOPELESS = 1\nclass Heralds:\n    def f(self, patience_s):\n        self.beat_ms = wishes = 1"
    assert retired(names(ast.walk(ast.parse(code)))) == [
        "Heralds: reporter",
        "_HOPELESS: unschedulable",
        "beat_ms: heartbeat",
        "patience_s: timeout or retry",
        "wishes: command",
    ]


def test_a_retired_phrase_is_noticed_with_what_to_write():
    code = 'def f():\n    """What ails the host."""\n    return 1  # written at one\n    # stroke'
    assert retired_phrases(code) == ["ails: is wrong with", "at one stroke: atomically"]
    assert retired_phrases("fails = details") == []
