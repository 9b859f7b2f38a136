"""Colours and carriage returns of output on pages."""

from __future__ import annotations

import pytest

from iris_gateway.dashboard.drawings.terminal import LONGEST, plain, printed

RED = '<span class="sgr-1">{}</span>'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain & <b>", "plain &amp; &lt;b&gt;"),
        ("\x1b[31mred\x1b[0m ink", RED.format("red") + " ink"),
        (
            "\x1b[91;1mboth\x1b[22mone",
            '<span class="sgr-1 sgr-bold">both</span>' + RED.format("one"),
        ),
        (
            "\x1b[31mover\ntwo lines\x1b[39m.",
            RED.format("over") + "\n" + RED.format("two lines") + ".",
        ),
        ("10%\r\x1b[31m100%\x1b[m\r", RED.format("100%")),
        ("\x1b[38;5;196mof 256", RED.format("of 256")),
        ("\x1b[38;2;200;10;10mof all", RED.format("of all")),
        ("\x1b[41mground", "ground"),
        ("\x1b[48;5;31mground", "ground"),
        ("\x1b[31<script>alert(1)</script>", "cript&gt;alert(1)&lt;/script&gt;"),
        ('\x1b]8;;javascript:x"\x07link\x1b]8;;\x07', "link"),
        ("safe\u202e\u2066gnp.exe", "safe\\u202e\\u2066gnp.exe"),
        ("\x1b[" + "9" * 5000 + "m.", "."),
    ],
)
def test_what_a_terminal_would_show(text: str, shown: str):
    assert str(printed(text)) == shown


def test_a_long_line_is_cut_and_says_so():
    shown = str(printed("\x1b[31m" + "x" * LONGEST + "\x1b[32myyy"))
    assert shown.startswith(RED.format("x" * LONGEST))
    assert shown.endswith("… (3 more)")


def test_a_line_of_many_colours_has_a_bounded_number_of_parts():
    assert str(printed("".join(f"\x1b[{31 + n % 2}mx" for n in range(2000)))).count("<span") == 100


def test_a_line_without_its_colours():
    assert plain("\x1b[1;31mValueError\x1b[0m: loss") == "ValueError: loss"
