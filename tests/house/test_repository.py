"""What files of this repository must contain, and must not."""

import ast
import re
from pathlib import Path

import pytest

from drawings.markdown import anchor
from tests.house.repository import ROOT, sources, statements, texts, tracked

MARKDOWN_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.MULTILINE)
LONGEST_FUNCTION = 100

# Pieced together, so that this file does not hold what it looks for.
FORBIDDEN = {
    "a package registry": r"pypi\.or"
    + r"g|pythonhosted\.or"
    + r"g|registry\.npmj"
    + r"s|crates\.i"
    + r"o\b",
    "an index option": r"--(extra-)?index-" + r"url\s|--find-" + r"links\s|--trusted-" + r"host\s",
    "a download address": r"https?://\S+/(simpl" + r"e|packages/[0-9a-f]{2})/",
    "a path of one machine": r"/Us"
    + r"ers/\w|/ho"
    + r"me/(?!iris)\w|\.pyen"
    + r"v/|"
    + re.escape(f"{ROOT}/"),
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE " + r"KEY-----",
    "an nkey seed": r"\bS[UACON][A-Z2-7]{56}\b",
    "a child that outlives its parent": r"preexec_fn=end_with_pare" + r"nt(?!\()",
    "a cloud or forge token": r"\b(AKI"
    + r"A[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|xox[abprs]-[A-Za-z0-9-]{10,})",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what):
    found = [
        f"{path}:{text[: match.start()].count(chr(10)) + 1}"
        for path, text in texts().items()
        for match in re.finditer(FORBIDDEN[what], text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a package registry", "see https://pypi.or" + "g/project/iris"),
        ("an index option", "--extra-index-" + "url https://example.org"),
        ("a download address", "https://example.org/simpl" + "e/iris/"),
        ("a path of one machine", "cd /ho" + "me/ann/iris"),
        ("a private key", "-----BEGIN RSA PRIVATE " + "KEY-----"),
        ("an nkey seed", "SU" + "A2" * 28),
        ("a child that outlives its parent", "preexec_fn=end_with_pare" + "nt,"),
        ("a cloud or forge token", "gh" + "p_" + "a" * 36),
    ],
)
def test_the_search_would_find(what, line):
    assert re.search(FORBIDDEN[what], line)


def test_no_symbolic_link_is_tracked():
    """One leads to what a clone does not have, or names a file twice."""
    assert [path for path in tracked() if (ROOT / path).is_symlink()] == []


def anchors(text: str) -> set[str]:
    """The fragments a Markdown file offers."""
    return {anchor(heading) for heading in HEADING.findall(text)}


def test_every_link_of_the_documentation_leads_somewhere():
    broken = []
    for path, text in texts().items():
        if path.suffix != ".md":
            continue
        for link in MARKDOWN_LINK.findall(CODE.sub("", text)):
            if re.match(r"[a-z]+:", link):
                continue
            file, _, fragment = link.partition("#")
            target = (ROOT / path.parent / file).resolve() if file else ROOT / path
            if not target.is_file() or (
                fragment and fragment not in anchors(target.read_text(encoding="utf-8"))
            ):
                broken.append(f"{path}: {link}")
    assert broken == []


def test_no_function_has_grown_too_long_to_read():
    long = [
        f"{source.path}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for source in sources()
        for node in statements(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    ]
    assert long == []


def product():
    """The modules of the product by path, as text."""
    return {
        path: text
        for path, text in texts().items()
        if path.suffix == ".py" and path.parts[0] in {"libs", "services"}
    }


def test_no_module_is_called_by_a_word_that_says_nothing():
    vague = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}
    assert [str(s.path) for s in sources() if vague & set(s.module.split("."))] == []


def test_every_module_says_what_it_is_for():
    silent = [str(s.path) for s in sources() if s.tree.body and not ast.get_docstring(s.tree)]
    assert silent == []


def test_the_changelog_has_a_place_for_what_comes_next():
    assert "## [Unreleased]" in texts()[Path("CHANGELOG.md")]


def test_what_is_marked_as_soak_runs_in_make_soak_only():
    marks = re.findall(r'-m pytest .* -m "?([^"\n]+)"?$', texts()[Path("Makefile")], re.MULTILINE)
    assert len(marks) == 6
    assert [mark for mark in marks if "not soak" not in mark] == ["soak or sampled"]
