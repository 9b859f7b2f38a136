"""The base of all messages, and the reference to an attempt that most of them carry."""

from __future__ import annotations

import msgspec


class ServiceMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The base of all messages: immutable, fields by position."""


class AttemptRef(ServiceMessage, frozen=True, order=True):
    """One attempt: job number, task index, attempt number from 0."""

    job: int
    index: int
    attempt: int
