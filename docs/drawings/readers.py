"""The part of docs/operating.md about what a gateway holds for its readers, from its table; the rest
of the page is written by hand.
"""

from __future__ import annotations

from pathlib import Path

from drawings.markdown import grid, note
from iris_bus.streams.holdings import MOST_BYTES
from iris_core.units import BYTES
from iris_gateway.api.reader_limits import READER_LIMITS
from iris_gateway.http.protocol import UNREAD_BYTES
from iris_gateway.settings import GatewaySettings
from iris_gateway.streams.feed import RING_BYTES

PAGE = Path(__file__).resolve().parents[1] / "operating.md"
HEADING, NEXT = "### What a gateway holds for its readers\n", "Measured on two busy cores"
LIMITS = GatewaySettings()
EXPLAINED = """\
A reader sets the pace: when it does not read, the gateway requests nothing more from the stream, and after `unread_s`
it closes the connection. Nothing is held as a list of lines, and a long answer lets other requests pass every 2 ms; of
many long answers one goes on at a time ([ADR 148](adr/0148-long-answers-are-bounded-in-bytes-and-take-turns.md)).
A test stops reading each of these answers in the middle while others use the gateway: with one reader that stops the
gateway has less than 150 MB, and at p99 `/healthz` comes behind less than 100 ms of its processor time, with twenty too."""
TOGETHER = f"""\
* **stored**: a reader of NATS brings what is read: up to 4 MiB that were not taken and what two requests of 8 MiB
  bring. All readers of a gateway hold at most {BYTES.show(MOST_BYTES)} together: beyond it, the one whose client has not
  read for the longest time keeps one message, and reads the others again when its client goes on.
* What waits in connections of clients that read too little is at most {BYTES.show(UNREAD_BYTES)} together: beyond it, the
  connection that has not kept up for the longest time is closed, and the log says so. Clients continue where they were.
* Answers that are made while they are read (all but lists, pages and uploads) are {LIMITS.watchers:,} at a time
  (`[gateway] watchers`), {LIMITS.watchers_per_user:,} of one user (`watchers_per_user`). One more is answered 429.
* The newest events are held once for all readers: {LIMITS.event_ring:,} (`event_ring`), and at most
  {BYTES.show(RING_BYTES)} of their bodies."""


def readers_document() -> str:
    """The page with the beginning of its section drawn anew."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(NEXT)
    before = before.partition(HEADING)[0]
    head = ("answer", "where", "held for one reader", "stored")
    rows = [
        (row.name, row.paths, row.held, "yes" if row.is_stored else "") for row in READER_LIMITS
    ]
    parts = [note("iris_gateway.api.reader_limits"), EXPLAINED, grid(head, rows), TOGETHER]
    return f"{before}{HEADING}\n" + "\n\n".join(parts) + f"\n\n{NEXT}{rest}"
