"""What the gateway holds for one reader of each kind of answer, whatever the reader's pace.

docs/operating.md is drawn from the table, and each row has a test with readers that stop reading
(tests/integration/test_reader_limits.py). Out of scope: how long what is read is stored, and how
many readers there may be (`GatewaySettings.watchers`).
"""

from __future__ import annotations

from dataclasses import dataclass

from iris_core.limits import CHUNK_BYTES, MESSAGE_BYTES
from iris_core.units import BYTES
from iris_gateway.api.work.results import FRAME_BYTES, FRAME_RESULTS
from iris_gateway.bundles import STORED_AT_ONCE
from iris_gateway.streams.event_history import STRETCH
from iris_gateway.streams.feed import PIECE as EVENTS
from iris_gateway.streams.log_formats import PIECE as WRITTEN_BYTES
from iris_gateway.streams.log_lines import HELD_BYTES, TAIL_BYTES
from iris_gateway.streams.results import INBOX_BYTES


@dataclass(frozen=True, slots=True)
class ReaderLimit:
    """One kind of answer.

    Attributes:
        name: what is read. paths: where.
        held: what one reader makes the gateway hold at most, beside what waits in its connection.
        is_stored: whether it is read from a stream of NATS by a reader of its own.
    """

    name: str
    paths: str
    held: str
    is_stored: bool = False


READER_LIMITS = (
    ReaderLimit(
        name="output",
        paths="`iris logs`, the log of a page; as text, JSON lines or events",
        held=f"{BYTES.show(HELD_BYTES)} of lines without an end; one message of "
        f"{BYTES.show(CHUNK_BYTES)}, written {BYTES.show(WRITTEN_BYTES)} at a time",
        is_stored=True,
    ),
    ReaderLimit(
        name="last lines of output",
        paths="`iris logs --tail N JOB`",
        held=f"as output, and {BYTES.show(TAIL_BYTES)} of lines; where they are longer the first line says so",
        is_stored=True,
    ),
    ReaderLimit(
        name="events",
        paths="`iris events --follow`, pages that are open in browsers",
        held=f"{EVENTS} events; the newest are shared by all readers, older ones are read from their stream",
        is_stored=True,
    ),
    ReaderLimit(
        name="pages of events",
        paths="`iris events`, `GET /v1/events`",
        held=f"{STRETCH:,} events",
        is_stored=True,
    ),
    ReaderLimit(
        name="results of maps",
        paths="`Client.map`, `GET /v1/jobs/JOB/results`",
        held=f"one message, written {FRAME_RESULTS} results or {BYTES.show(FRAME_BYTES)} at a time; "
        f"{BYTES.show(INBOX_BYTES)} of new ones; 16 bytes of each call that has failed",
        is_stored=True,
    ),
    ReaderLimit(
        name="artifacts",
        paths="`iris fetch`, `GET /v1/tasks/TASK/artifact`",
        held=f"one part of {BYTES.show(CHUNK_BYTES)}",
    ),
    ReaderLimit(
        name="commands, terminals and tunnels",
        paths="`iris exec`, `iris attach`, `iris port-forward`",
        held="one piece of 256 KiB; the worker holds the rest, 256 KiB",
    ),
    ReaderLimit(
        name="usage as CSV",
        paths="`iris usage -o csv`, `GET /v1/usage`",
        held="one page of 1 MiB; the next one is read when it is written",
    ),
    ReaderLimit(
        name="lists",
        paths="`iris ls` and its like, `GET /v1/jobs`",
        held=f"one page of 1 MiB, or a single record of up to {BYTES.show(MESSAGE_BYTES)}",
    ),
    ReaderLimit(
        name="pages",
        paths="the dashboard",
        held="one page, made of such lists",
    ),
    ReaderLimit(
        name="uploads of bundles",
        paths="`PUT /v1/bundles/DIGEST`",
        held="64 KiB while one is received, into a file; "
        f"{STORED_AT_ONCE} at a time are stored, 8 MiB of each on the way",
    ),
)
