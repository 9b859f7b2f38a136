"""Output as a terminal would leave it: colours as classes, the last part of a line that was written
over.

Pure. Every other escape is dropped, and all text is escaped. `terminal.js` does the same in the
browser; a test compares them.
Source: docs/design/page.md#components.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from markupsafe import Markup

from iris_core.limits import TURNS
from iris_gateway.streams.log_lines import LogLine

LONGEST = 2000
"""Characters of a line of output that a page shows; the file to download has all of them."""
RUNS = 100
"""Changes of style in one line that a page shows."""
_CONTROLS = re.compile(r"(\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_]?)|\r+)")
_TURNS = re.compile(f"[{TURNS}]")
_STYLES = re.compile(r"\x1b\[((?:\d{0,3};){0,15}\d{0,3})m")


class Style(NamedTuple):
    """One of the eight colours of a terminal, -1: the page's own."""

    colour: int = -1
    bold: bool = False

    @property
    def classes(self) -> str:
        words = (f"sgr-{self.colour}" if self.colour >= 0 else "", "sgr-bold" if self.bold else "")
        return " ".join(filter(None, words))


PLAIN = Style()
Run = tuple[str, str]
"""Classes, and the text that has them."""
_COLOURS = {39: -1} | {base + n: n for base in (30, 90) for n in range(8)}
_BOLD = {1: True, 22: False}


def runs(text: str, style: Style = PLAIN) -> tuple[list[Run], Style]:
    """One line in runs, and the style in which the next line of its stream begins."""
    found: list[Run] = []
    back = False
    for number, part in enumerate(_CONTROLS.split(in_one_direction(text))):
        if number % 2 and (codes := _STYLES.fullmatch(part)):
            style = _changed(style, codes[1])
        elif number % 2:
            back = back or part.startswith("\r")
        elif part:
            if back:
                found.clear()
            _append(found, style.classes, part)
            back = False
    return _shortened(found), style


def _append(found: list[Run], classes: str, text: str) -> None:
    """Put a text behind the runs of a line."""
    if found and (found[-1][0] == classes or len(found) == RUNS):
        classes, before = found.pop()
        text = before + text
    found.append((classes, text))


def _shortened(found: list[Run]) -> list[Run]:
    left = LONGEST
    kept = list[Run]()
    for classes, text in found:
        kept.append((classes, text[:left]))
        left -= len(text)
        if left < 0:
            break
    cut = sum(len(text) for _, text in found) - LONGEST
    return [*kept, ("", f"… ({cut:,} more)")] if cut > 0 else kept


def _changed(style: Style, codes: str) -> Style:
    """A style after the parameters of one SGR sequence."""
    numbers = iter([int(code or 0) for code in codes.split(";")])
    for code in numbers:
        if code in (38, 48):
            colour = _extended(numbers)
            style = style._replace(colour=colour) if code == 38 else style
        elif code == 0:
            style = PLAIN
        else:
            style = Style(_COLOURS.get(code, style.colour), _BOLD.get(code, style.bold))
    return style


def _extended(numbers: Iterator[int]) -> int:
    """The nearest of the eight to a colour of 256, or to one of red, green and blue."""
    if next(numbers, 0) == 2:
        return _nearest(next(numbers, 0), next(numbers, 0), next(numbers, 0))
    n = next(numbers, 0)
    if n < 16:
        return n % 8
    if n >= 232:
        return _nearest(*[10 * (n - 232) + 8] * 3)
    n -= 16
    return _nearest(51 * (n // 36), 51 * (n // 6 % 6), 51 * (n % 6))


def _nearest(red: int, green: int, blue: int) -> int:
    least = min(red, green, blue)
    most = max(red, green, blue)
    if most - least < 48:
        return 7 if most > 127 else 0
    return sum(bit for bit, part in ((1, red), (2, green), (4, blue)) if 2 * part > least + most)


def _marked(found: Iterable[Run]) -> Markup:
    texts = (
        Markup('<span class="{}">{}</span>').format(*run) if run[0] else Markup.escape(run[1])
        for run in found
    )
    return Markup().join(texts)


def printed(text: str) -> Markup:
    """Some lines of one stream as they look on a terminal."""
    style = PLAIN
    lines = list[Markup]()
    for line in text.split("\n"):
        found, style = runs(line, style)
        lines.append(_marked(found))
    return Markup("\n").join(lines)


def printed_lines(lines: Iterable[LogLine]) -> Iterator[tuple[LogLine, Markup]]:
    """Lines of several streams, each as it looks; a colour lasts in its stream until it is
    changed.
    """
    styles: dict[object, Style] = {}
    for line in lines:
        found, styles[line.source] = runs(line.text, styles.get(line.source, PLAIN))
        yield line, _marked(found)


def in_one_direction(text: str) -> str:
    """A text, or a page, with the characters escaped that make what follows look like something
    else.

    The escapes are those of JSON, which a form may hold.
    """
    return text if text.isascii() else _TURNS.sub(lambda turn: f"\\u{ord(turn[0]):04x}", text)


def plain(text: str) -> str:
    """One line without its colours."""
    return "".join(part for _, part in runs(text)[0])
