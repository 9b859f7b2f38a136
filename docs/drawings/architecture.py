"""docs/images/architecture.svg: who sends what to whom, from the tables of subjects, streams and
roles.

A column is a service, a row is what one sends to another: directly, through a stream, or through a
    bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from iris_core import subjects
from iris_core.access.roles import ROLES
from iris_core.subjects import MessagePattern

OUTSIDE = "outside"
COLUMNS = {
    OUTSIDE: "command line, SDK, browsers, subscribers",
    "gateway": "HTTP API and pages",
    "state": "judges and records",
    "scheduler": "proposes placements",
    "worker": "runs tasks, one a host",
    "proxy": "in front of deployments",
    "provisioner": "makes and deletes hosts",
    "notifier": "tells of jobs",
}
_STEP, _LEFT, _TOP, _ROW, _HEAD = 178, 92, 84, 32, 36
_STYLE = """svg { --ink: #1a1f26; --faint: #59636f; --line: #dde2e8; --paper: #fff; --mark: #0969da; --box: #f6f7f9; }
@media (prefers-color-scheme: dark) {
svg { --ink: #e8ecf1; --faint: #9aa5b1; --line: #2a313b; --paper: #161a21; --mark: #58a6ff; --box: #1c222b; } }
text { font: 12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; fill: var(--ink); }
.name { font-size: 15px; font-weight: 650; } .small { font-size: 11px; fill: var(--faint); }
.label { paint-order: stroke; stroke: var(--paper); stroke-width: 6px; stroke-linejoin: round; }
.paper { fill: var(--paper); } .box { fill: var(--box); stroke: var(--line); } .lane { stroke: var(--line); }
.arrow { stroke: var(--mark); stroke-width: 1.6; fill: none; } .end, .dot { fill: var(--mark); }
.head { font-size: 12px; font-weight: 650; fill: var(--faint); }"""


class Row(NamedTuple):
    """What one column sends to others. ``store``: the stream or bucket that it goes through."""

    writer: str
    readers: tuple[str, ...]
    words: str
    store: str = ""


HTTP = (
    Row(OUTSIDE, ("gateway",), "jobs, tasks, logs, pages; events as they happen"),
    Row(OUTSIDE, ("proxy",), "requests of deployments, /d/NAME/..."),
)


def parties(text: str) -> list[str]:
    """The columns of a writer or reader in the table of subjects, without its part in brackets."""
    found = [one.partition(" (")[0] for one in text.split(", ")]
    return list(dict.fromkeys(OUTSIDE if one == "anyone" else one for one in found))


def direct() -> list[Row]:
    """Messages that no stream keeps, one row for each pair of columns."""
    pairs: dict[tuple[str, str], list[str]] = {}
    for subject in subjects.SUBJECTS:
        if subject.kept is not MessagePattern.STREAM and subject.pattern != subjects.DESCRIBE:
            for writer in parties(subject.writer):
                for reader in parties(subject.reader):
                    if writer != reader:
                        pairs.setdefault((writer, reader), []).append(subject.message)
    return [
        Row(writer, (reader,), ", ".join(dict.fromkeys(said)))
        for (writer, reader), said in pairs.items()
    ]


def streams() -> Iterator[Row]:
    """A row for each stream."""
    for stream in subjects.STREAMS:
        kept = [one for one in subjects.SUBJECTS if one.pattern in stream.subjects]
        readers = [reader for one in kept for reader in parties(one.reader)] + _readers(stream.name)
        yield Row(
            parties(kept[0].writer)[0],
            _distinct(readers),
            _list(one.message for one in kept),
            stream.name,
        )


def buckets() -> Iterator[Row]:
    """A row for each bucket, as the roles may use it: who may put or else declare it writes."""
    for store in subjects.STORES[len(subjects.STREAMS) :]:
        may = {
            role.name: role.stores[store]
            for role in ROLES
            if role.name in COLUMNS and store in role.stores
        }
        writer = next((name for name, what in may.items() if what == "put"), "state")
        readers = [name for name in _readers(store) if name != writer] or [writer]
        yield Row(writer, _distinct(readers), "", store.partition("_")[2])


def _readers(store: str) -> list[str]:
    return [
        role.name
        for role in ROLES
        if role.name in COLUMNS and role.stores.get(store) in ("read", "get")
    ]


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _list(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def architecture_document() -> str:
    """The drawing."""
    groups = (
        ("HTTP", HTTP),
        ("NATS, from one to another", direct()),
        ("NATS, kept in streams", list(streams())),
        ("NATS, kept in buckets", list(buckets())),
    )
    parts, y = list[str](), _TOP
    for title, rows in groups:
        parts.append(f'<text class="head" x="16" y="{y + 22}">{title}</text>')
        y += _HEAD
        for row in rows:
            parts += _drawn(row, y + 18)
            y += _ROW
    return _framed(parts, y + 8)


def _framed(rows: Sequence[str], height: int) -> str:
    width = 2 * _LEFT + _STEP * (len(COLUMNS) - 1)
    heads = []
    for number, (name, words) in enumerate(COLUMNS.items()):
        x = _LEFT + _STEP * number
        heads.append(f'<line class="lane" x1="{x}" x2="{x}" y1="66" y2="{height - 8}"/>')
        heads.append(f'<rect class="box" x="{x - 84}" y="10" width="168" height="56" rx="8"/>')
        lines = _lines(words)
        heads.append(
            f'<text class="name" x="{x}" y="{38 - 4 * len(lines)}" text-anchor="middle">{name}</text>'
        )
        for at, line in enumerate(lines):
            y = 58 - 6 * len(lines) + 12 * at
            heads.append(f'<text class="small" x="{x}" y="{y}" text-anchor="middle">{line}</text>')
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    described = "The services of Iris, and what each sends to which, directly or through a stream or bucket of NATS"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            "<!-- Drawn by `make draw` from iris_core.subjects and iris_core.access.roles; change those, not this. -->",
            f"<title>{described}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" width="{width}" height="{height}" rx="10"/>',
            *heads,
            *rows,
            "</svg>\n",
        ]
    )


def _lines(words: str) -> list[str]:
    """A text on one line, or on two at its last comma in the first half."""
    if len(words) <= 30:
        return [words]
    at = words.index(", ", len(words) // 3) + 1
    return [words[:at], words[at + 1 :]]


def _drawn(row: Row, y: int) -> Iterator[str]:
    """The arrows of one row, and its words from the leftmost column on."""
    places = {name: _LEFT + _STEP * at for at, name in enumerate(COLUMNS)}
    start, ends = places[row.writer], [places[reader] for reader in row.readers]
    yield f'<circle class="dot" cx="{start}" cy="{y}" r="4"/>'
    for end in ends:
        if end == start:
            yield f'<path class="arrow" d="M{start} {y} h22 v9 h-14"/>'
            yield f'<path class="end" d="M{start + 3} {y + 9} l7 -4 v8 z"/>'
        else:
            way = 1 if end > start else -1
            yield f'<line class="arrow" x1="{start}" x2="{end - 6 * way}" y1="{y}" y2="{y}"/>'
            yield f'<path class="end" d="M{end} {y} l{-9 * way} -4.5 v9 z"/>'
    words = f"{row.store}: {row.words}" if row.store and row.words else row.store or row.words
    at = min([start, *ends]) + (30 if start in ends else 12)
    yield f'<text class="label" x="{at}" y="{y - 8 if start not in ends else y + 4}">{escape(words)}</text>'
