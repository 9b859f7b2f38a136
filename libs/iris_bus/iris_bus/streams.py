"""The streams of the subjects table, declared on a server, and the `Streams` contract over them.

A declaration is idempotent: what is missing is made, what differs and can be changed is changed, nothing is dropped.
Out of scope: the journal's fence and the publishing of events. Source: iris_core.subjects;
docs/design/nats.md#features-used, docs/design/nats.md#server-behaviour.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from iris_bus.api import STREAM_NOT_FOUND, Api, ApiError
from iris_bus.connection import Link
from iris_bus.contract import Headers, Message
from iris_bus.nats_binary import check_version
from iris_bus.reader import JetReader
from iris_bus.retry import with_retries
from iris_core import subjects
from iris_core.subjects import Stream

log = logging.getLogger(__name__)

MESSAGE_BYTES = 8 << 20
_NS = 1_000_000_000
_DUPLICATES_NS = _NS // 10
"""The shortest there is: nothing stored is recognised by its message id, and the server keeps ids in memory."""
_STARTING_S = 30.0
_FIXED = ("persist_mode", "storage", "retention", "name")
_RETRY_FOR_S = 5.0


def config_of(stream: Stream, replicas: int) -> dict[str, Any]:
    """The body of STREAM.CREATE for one row of the table."""
    config: dict[str, Any] = {
        "name": stream.name,
        "description": stream.why,
        "subjects": list(stream.subjects),
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "discard": "new" if stream.discard_new else "old",
        "max_msgs": -1,
        "max_bytes": stream.max_bytes or -1,
        "max_age": stream.max_age_s * _NS,
        "max_msgs_per_subject": -1,
        "max_msg_size": MESSAGE_BYTES,
        "duplicate_window": _DUPLICATES_NS,
        "compression": "none",  # a server that truncates a compressed stream damages its copy (docs/design/nats.md)
        "allow_direct": True,
        "deny_delete": stream.name == subjects.JOURNAL.name,
    }
    if stream.kept_as:
        config["subject_transform"] = {"src": stream.subjects[0], "dest": stream.kept_as}
    if not stream.fsync and replicas == 1:
        config["persist_mode"] = "async"  # overrides the server's `sync_interval: always` for this stream
    return config


def bucket_config(bucket: str, replicas: int) -> dict[str, Any]:
    """An object store bucket in the layout every NATS tool knows."""
    return {
        "name": f"OBJ_{bucket}",
        "description": "whole objects in chunks, each with a digest",
        "subjects": [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
        **_of_bucket(replicas),
    }


def key_value_config(bucket: str, replicas: int) -> dict[str, Any]:
    """A key-value bucket in the layout every NATS tool knows: the last value of each key."""
    return {
        "name": f"KV_{bucket}",
        "description": "the last value of each key",
        "subjects": [f"$KV.{bucket}.>"],
        **_of_bucket(replicas),
        "max_msgs_per_subject": 1,
        "max_msg_size": MESSAGE_BYTES,
        "allow_msg_ttl": True,
        "deny_delete": True,
    }


def _of_bucket(replicas: int) -> dict[str, Any]:
    """Settings common to all buckets."""
    return {
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "discard": "new",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "duplicate_window": _DUPLICATES_NS,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }


class JetStreams:
    """Stored messages.

    Args:
        replicas: 1 on one server, 3 on a cluster.
        table: the streams `ensure` declares.
        buckets: the object buckets `ensure` declares. key_values: the key-value buckets.
    """

    def __init__(
        self,
        link: Link,
        api: Api,
        *,
        replicas: int = 1,
        table: Sequence[Stream] = subjects.STREAMS,
        buckets: Sequence[str] = (subjects.SNAPSHOTS_BUCKET, subjects.BUNDLES_BUCKET),
        key_values: Sequence[str] = (subjects.DISCOVERY_BUCKET, subjects.KEYS_BUCKET),
    ) -> None:
        self._link = link
        self._api = api
        self._retrying = api.retrying(_RETRY_FOR_S)
        self._replicas = replicas
        self._table = {stream.name: stream for stream in table}
        self._buckets = buckets
        self._key_values = key_values

    async def ensure(self) -> None:
        """Declare all streams and buckets; waits while JetStream starts. Raises Unavailable, NoServer when it is
        too old.
        """
        check_version(self._link.server_version)
        wanted = [config_of(stream, self._replicas) for stream in self._table.values()]
        wanted += [bucket_config(bucket, self._replicas) for bucket in self._buckets]
        wanted += [key_value_config(bucket, self._replicas) for bucket in self._key_values]
        for config in wanted:
            await with_retries(partial(self._declare, config), _STARTING_S)

    async def _declare(self, config: dict[str, Any]) -> None:
        name = config["name"]
        try:
            present = (await self._api.info(name)).config
        except ApiError as error:
            if error.number != STREAM_NOT_FOUND:
                raise
            await self._api.change(f"STREAM.CREATE.{name}", config)
            return
        changed = {**present, **{key: value for key, value in config.items() if key not in _FIXED}}
        if changed != present:
            log.info("stream %s is declared differently now", name)
            await self._api.change(f"STREAM.UPDATE.{name}", changed)

    async def publish(self, subject: str, data: bytes, *, headers: Headers | None = None, timeout: float = 5.0) -> int:
        """Store one message, with retries while JetStream starts or moves the stream, and return its sequence.

        Raises Full; Unavailable after ``timeout`` seconds, when it is unknown whether it was stored: an unanswered
        attempt is not repeated.
        """

        async def store() -> int:
            return (await self._api.store(subject, data, timeout, headers)).seq

        return await with_retries(store, timeout, repeat_unknown=False)

    def read(self, stream: str, after: int, *, subject: str = "") -> JetReader:
        dense = not subject and stream in self._table
        return JetReader(self._link, self._api, stream, after, subject, dense=dense, strict=False)

    async def last(self, stream: str, *, subject: str = "") -> Message | None:
        if subject:
            return await self._retrying.message(stream, last_by_subj=subject)
        newest = await self.end(stream)
        return await self._retrying.message(stream, seq=newest) if newest else None

    async def next(self, stream: str, after: int, *, subject: str) -> Message | None:
        """From whichever server answers; one that lags behind may have none, so then the leader is asked."""
        wanted = {"seq": after + 1, "next_by_subj": subject}
        found = await with_retries(partial(self._api.copy, stream, **wanted), _RETRY_FOR_S)
        return found or await self._retrying.message(stream, **wanted)

    async def drop(self, stream: str, subject: str) -> None:
        await self._retrying.purge(stream, filter=subject)

    async def end(self, stream: str) -> int:
        return (await self._retrying.info(stream)).state.last_seq

    async def trim(self, stream: str, below: int) -> None:
        if below > 1:
            await self._retrying.purge(stream, seq=below)

    async def size(self, stream: str) -> int:
        return (await self._retrying.info(stream)).state.bytes
