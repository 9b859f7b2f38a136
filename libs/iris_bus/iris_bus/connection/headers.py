"""Encodes and decodes a message's header block. Pure."""

from __future__ import annotations

from collections.abc import Mapping

RawHeaders = bytes | Mapping[str, str] | None
"""The block as the server sent it, or the mapping that nats-py parsed."""

_VERSION_CHARS = len("NATS/1.0")


def parse(raw: RawHeaders) -> dict[str, str]:
    """The headers; a status line of the server becomes ``Status`` and ``Description``. Malformed
    lines are skipped.
    """
    if not isinstance(raw, bytes):
        return dict(raw or {})
    first, *lines = raw.decode("utf-8", "replace").split("\r\n")
    headers = {}
    if len(first) > _VERSION_CHARS:
        headers["Status"], _, headers["Description"] = first[_VERSION_CHARS:].strip().partition(" ")
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip()] = value.strip()
    return headers
