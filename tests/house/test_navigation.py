"""Every page of the manuals has one place in the navigation of the site."""

import re

from navigation import ROOT, linked_files, pages, sections
from tests.house.repository import tracked

RUN_INTO_A_LIST = re.compile(r"(?m)^(?![ *+|#-]|\d+\. ).+\n(?:[*+-]|\d+\.) .*")
FENCED = re.compile(r"(?ms)^ *```.*?^ *```$")


def test_every_page_of_the_manuals_is_in_one_section():
    placed = [page for found in sections().values() for page in found]
    manuals = {str(path) for path in tracked() if path.parts[0] == "docs" and path.suffix == ".md"}
    assert sorted(placed) == sorted(set(placed))
    assert manuals - set(placed) == set()
    assert set(pages()) == set(placed)


def test_a_section_without_a_page_is_left_out_and_a_new_page_is_found(tmp_path):
    (tmp_path / "docs" / "tutorials").mkdir(parents=True)
    (tmp_path / "README.md").write_text(
        "[a](docs/tutorials/b#c) [d](LICENSE) [e](https://example.org)"
    )
    (tmp_path / "LICENSE").touch()
    new = tmp_path / "docs" / "new.md"
    new.touch()
    for name in ("b.md", "README.md", "a.md"):
        (tmp_path / "docs" / "tutorials" / name).write_text("[up](../../LICENSE)")

    tutorials = [f"docs/tutorials/{name}.md" for name in ("README", "a", "b")]
    assert sections(tmp_path) == {"Overview": ["README.md"], "Tutorials": tutorials}
    assert pages(tmp_path) == ["README.md", *tutorials, str(new.relative_to(tmp_path))]
    assert linked_files(pages(tmp_path), tmp_path) == ["LICENSE"]


def test_an_empty_line_is_before_every_list():
    """The site shows a list after a line of text as part of the text; forges do not."""
    texts = {page: FENCED.sub("", (ROOT / page).read_text()) for page in pages()}
    assert [
        f"{page}: {found}"
        for page, text in texts.items()
        for found in RUN_INTO_A_LIST.findall(text)
    ] == []


def test_a_list_that_runs_into_a_line_of_text_is_noticed():
    assert RUN_INTO_A_LIST.findall("Two:\n* a\n* b\n") == ["Two:\n* a"]
    assert RUN_INTO_A_LIST.findall("# Two\n* a\n  more\n* b\n\n1. c\n2. d\n") == []
