"""Logs: one JSON object per line, or plain text on a terminal; what is passed as ``extra`` becomes
a field.

    log.info("assigned", extra={"task": "/a/0", "attempt": 1, "worker": "w0"})

Out of scope: where logs go beyond standard error. Source: docs/operating.md#watching.
"""

from __future__ import annotations

import datetime
import logging
import sys
from typing import Any, TextIO

import msgspec

from iris_service import tracing

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Time in UTC, level, service, logger, message, the extra fields, and the trace that the line
    belongs to.
    """

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
            **extras(record),
        }
        if context := tracing.current():
            line["trace_id"] = tracing.trace_id(context)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class PlainLines(logging.Formatter):
    """Lines of plain text for a terminal."""

    def __init__(self, service: str) -> None:
        super().__init__(f"%(asctime)s.%(msecs)03d {service} %(levelname)s %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        fields = " ".join(f"{key}={value}" for key, value in extras(record).items())
        first, newline, rest = text.partition("\n")
        return f"{first} {fields}{newline}{rest}" if fields else text


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that the caller passed as ``extra``."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def set_up(
    service: str, level: str = "info", style: str = "auto", stream: TextIO | None = None
) -> None:
    """Send every log line of this process to ``stream`` (standard error).

    Args:
        style: "json", "plain", or "auto": plain on a terminal.
    """
    stream = stream or sys.stderr
    plain = style == "plain" or (style == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PlainLines(service) if plain else JsonLines(service))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(True)
