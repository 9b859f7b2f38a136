"""Tables fit the terminal: columns give way in their order, sentences wrap; texts are compared
whole.
"""

import click
import pytest

from iris.cli.output.tables import Column, table_lines
from iris.cli.root import COMMANDS, SECTIONS
from tests.support.answers import Said, answering

COLUMNS = (
    Column("NAME", lambda row: row[0]),
    Column("BAND", lambda row: "interactive", gives=1),
    Column("AGE", lambda row: "2m05s", right=True, gives=2),
    Column("NOTE", lambda row: row[1], wraps=True),
)
ROWS = [("/train", "asks for 8 cores, the best host has 4 free"), ("/a", "")]


def test_a_pipe_gets_everything():
    assert table_lines(ROWS, COLUMNS) == [
        "NAME    BAND           AGE  NOTE",
        "/train  interactive  2m05s  asks for 8 cores, the best host has 4 free",
        "/a      interactive  2m05s",
    ]


def test_a_sentence_wraps_below_itself():
    assert table_lines(ROWS, COLUMNS, 60) == [
        "NAME    BAND           AGE  NOTE",
        "/train  interactive  2m05s  asks for 8 cores, the best host",
        "                            has 4 free",
        "/a      interactive  2m05s",
    ]


@pytest.mark.parametrize("width", [0, 60])
def test_lines_of_a_text_stay_in_their_column(width):
    rows = [("/a", "asks for 8\r\n/train  interactive\n\n0 free"), ("/b", "")]
    assert table_lines(rows, COLUMNS, width)[1:] == [
        "/a    interactive  2m05s  asks for 8",
        "                          /train  interactive",
        "",
        "                          0 free",
        "/b    interactive  2m05s",
    ]


def test_colours_of_a_text_end_with_it():
    """Those of the listing end by themselves; conceal (8) would hide the rows below."""
    rows = [("/a", "\033[8mhidden"), ("/b", click.style("failed", fg="red"))]
    assert [line.rpartition("  ")[2] for line in table_lines(rows, COLUMNS)[1:]] == [
        "\033[8mhidden\033[0m",
        "\033[31mfailed\033[0m",
    ]


@pytest.mark.parametrize(
    ("width", "heading"),
    [
        (52, "NAME    BAND           AGE  NOTE"),
        (51, "NAME      AGE  NOTE"),
        (38, "NAME    NOTE"),
        (1, "NAME    NOTE"),
    ],
)
def test_columns_give_way_in_their_order(width, heading):
    assert table_lines(ROWS, COLUMNS, width)[0] == heading


def test_every_line_fits_where_it_can():
    assert all(
        len(line) <= width for width in range(32, 90) for line in table_lines(ROWS, COLUMNS, width)
    )


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ((), True),
        (("--routes",), False),
        (("--prefix", "chat"), False),
        (("--parent", "chat"), False),
    ],
)
def test_routes_are_listed_when_they_are_asked_for(iris, words, asked):
    with answering(lambda _: Said(200, {"items": [], "next_cursor": None})) as server:
        iris("ls", "--url", server.url, *words)
    assert ("without_routes=true" in server.requests[0].path) == asked


def test_every_command_is_in_one_section_of_the_help(iris):
    _, out, _ = iris("--help")
    assert sum(map(len, SECTIONS.values())) == len(COMMANDS)
    assert [line for line in out.splitlines() if line.endswith(":")] == [
        "Options:",
        *(f"{title}:" for title in ("Run", "Look", "Control", "Serve", "Operate")),
    ]
