"""Reads the results of a map's calls from their stream: those that are there, and new ones until the job has ended.

A worker stores a result before it reports the end of its attempt, so no result follows the end of a job, unless it was
killed. Source: docs/adr/0076-results-are-a-stream-of-their-own.md.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence

from iris_bus.contract import Message, Streams, Unavailable
from iris_core import subjects
from iris_core.codec import Undecodable, unpack
from iris_core.messages.gateway_worker import CallResult, CallResults
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.completion import Completion
from iris_gateway.streams.readers import arrived_within, batch, reading, taken

log = logging.getLogger(__name__)

_QUIET_S = 5.0
_SILENT_S = 5.0
GONE = "the results of this map are not kept any more"

ResultBatch = tuple[int, list[CallResult]]
"""Results of one message, with its sequence, from which a reader resumes."""


class ResultReader:
    """Reads the results of all maps."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def last(self, job: int) -> int:
        """The sequence of the newest results of a job; 0: there are none. Raises ProblemResponse unavailable."""
        try:
            message = await self._streams.last(subjects.RESULTS.name, subject=subjects.job_results(job))
        except Unavailable:
            raise ProblemResponse("unavailable", "the results cannot be read") from None
        return message.sequence if message is not None else 0

    async def follow(self, job: int, after: int, ending: Completion) -> AsyncIterator[list[ResultBatch]]:
        """Results behind a sequence until the job has ended; an empty list after a silence.

        Raises ProblemResponse unavailable, gone.
        """
        with reading(self._streams, subjects.RESULTS.name, after, subjects.job_results(job)) as reader:
            reader.on_arrival(ending.arrival.set)
            position = after
            while not ending.known:
                await arrived_within(ending.arrival, _QUIET_S)
                found = taken(reader, GONE)
                position = found[-1].sequence if found else position
                yield _unpacked(found)
            until = 0 if ending.cut_off else await self.last(job)
            while position < until:
                found = await batch(reader, _SILENT_S, GONE)
                if not found:
                    raise ProblemResponse("unavailable", "the results cannot be read beyond this place")
                position = found[-1].sequence
                yield _unpacked(found)


def _unpacked(messages: Sequence[Message]) -> list[ResultBatch]:
    found: list[ResultBatch] = []
    for message in messages:
        try:
            found.append((message.sequence, list(unpack(message.data, CallResults).results)))
        except Undecodable as error:
            log.error("undecodable results at %d: %s", message.sequence, error)
    return found
