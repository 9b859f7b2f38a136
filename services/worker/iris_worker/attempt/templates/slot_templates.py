"""Which slots hold templates, and of whom: they end before an attempt of another job is prepared
there.

Where tasks are confined, the templates of a slot, and the processes that wait there for a call,
have its user and its
sandbox: code of their job that still runs in them could reach what is prepared for the next one. A
bare template, which runs no such code, stays for further jobs of its user.
Out of scope: ending them (the launcher).
Source: docs/design/calls.md#slots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from iris_worker.launcher.records.records import EmptySlot, SlotEmptied


class _Held(NamedTuple):
    """``job``: the only one whose attempts may have the slot as it is; 0: any of the ``user``.
    ``bare``: the key of the bare template that may stay for these; empty: none.
    """

    job: int
    user: str
    bare: str


_UNKNOWN = _Held(-1, "", "")


class SlotTemplates:
    """Those of this worker.

    Args:
        send: has the launcher empty a slot. uid_of: the user who has nothing but this slot; None:
            there is none.
    """

    def __init__(
        self, send: Callable[[EmptySlot], object], uid_of: Callable[[int], int | None]
    ) -> None:
        self._send = send
        self._uid_of = uid_of
        self._empties = False
        self._at_first: _Held | None = None
        self._held: dict[int, _Held | None] = {}
        self._emptying: dict[int, asyncio.Future[str]] = {}

    def begin(self, *, empties: bool, outlived: bool) -> None:
        """A worker has started. ``empties``: slots are to be emptied. ``outlived``: its launcher
        was there before, so any slot may hold templates.
        """
        self._empties = empties
        self._at_first = _UNKNOWN if outlived else None

    def hold(self, slot: int, job: int, user: str, bare: str) -> None:
        """A template is to be made in a slot; fields as in `_Held`."""
        self._held[slot] = _Held(job, user, bare)

    def empty(self, slot: int, job: int, user: str) -> asyncio.Future[str] | None:
        """Have what was held for others ended in a slot that attempts of this job are to have.
        None: there is nothing.

        The result: why that cannot be done, for a person; empty: it is done.
        """
        if slot in self._emptying:
            return self._emptying[slot]
        held = self._held.get(slot, self._at_first)
        if (
            not self._empties
            or held is None
            or held.job == job
            or (held.job == 0 and held.user == user)
        ):
            return None
        kept = held.bare if held.user == user else ""
        self._held[slot] = _Held(0, user, kept) if kept else None
        self._emptying[slot] = asyncio.get_running_loop().create_future()
        self._send(EmptySlot(slot, kept, self._uid_of(slot)))
        return self._emptying[slot]

    def on_emptied(self, answer: SlotEmptied) -> None:
        """The launcher has emptied a slot, maybe for an earlier worker."""
        future = self._emptying.pop(answer.slot, None)
        if future is not None and not future.done():
            future.set_result(answer.text)
