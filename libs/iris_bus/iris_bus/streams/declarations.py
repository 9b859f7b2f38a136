"""How streams and buckets are declared on a server, and what a declaration changes of one that is
there. Pure.

What makes a stored message less safe is never changed by a service: a process that starts with
other settings must not lower what a cluster has. `iris admin streams --apply` does. Source:
iris_core.subjects; docs/design/nats.md#features-used;
docs/design/nats.md#declaring-streams.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iris_core import subjects
from iris_core.subjects import Stream

Config = dict[str, Any]

MESSAGE_BYTES = 8 << 20
COPIES = 3
"""Copies of each stream on a cluster that was not told another number."""
_NS = 1_000_000_000
_DUPLICATES_NS = _NS // 10
"""The shortest there is: nothing stored is recognised by its message id, and the server keeps ids
in memory.
"""

FIXED = ("name", "persist_mode", "storage", "retention")
"""Settings that the server changes on no stream."""


def _unlimited(value: int) -> float:
    return value if value > 0 else math.inf


SAFETY: Mapping[str, Callable[[Any], float]] = {
    "num_replicas": float,
    "max_age": _unlimited,
    "max_bytes": _unlimited,
    "max_msgs": _unlimited,
    "max_msgs_per_subject": _unlimited,
    "discard": ("old", "new").index,
    "deny_delete": bool,
    "retention": lambda policy: policy == "limits",
    "storage": lambda kind: kind == "file",
    "persist_mode": lambda mode: mode != "async",
}
"""Settings on which the safety of stored messages depends: the higher the number, the longer they
stay.
"""

_SYNCED: Config = {"persist_mode": "default"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting of a stream that is not as wanted.

    Attributes:
        lowers: whether the wanted value keeps messages less safely. fixed: whether no server
            changes it.
    """

    stream: str
    key: str
    found: Any
    wanted: Any
    lowers: bool = False
    fixed: bool = False

    def __str__(self) -> str:
        return f"{self.stream}: {self.key} is {self._shown(self.found)}, the settings say {self._shown(self.wanted)}"

    def _shown(self, value: Any) -> str:
        return (
            f"{value / _NS / subjects.DAY_S:g} days"
            if self.key == "max_age" and value
            else str(value)
        )


def copies(replicas: int, *, clustered: bool) -> int:
    """How many copies streams get: as the settings say, or as many as the servers allow."""
    return replicas or (COPIES if clustered else 1)


def declarations(table: Iterable[Stream], replicas: int, *, clustered: bool) -> list[Config]:
    """The body of STREAM.CREATE for every stream and bucket."""
    number = copies(replicas, clustered=clustered)
    found = [config_of(stream, number, clustered=clustered) for stream in table]
    found += [
        bucket_config(bucket, number)
        for bucket in (subjects.SNAPSHOTS_BUCKET, subjects.BUNDLES_BUCKET)
    ]
    return found + [
        key_value_config(bucket, number)
        for bucket in (subjects.DISCOVERY_BUCKET, subjects.KEYS_BUCKET, subjects.NOTIFY_BUCKET)
    ]


def differences(present: Config, wanted: Config) -> list[Difference]:
    """What of a stream is not as wanted, in the order of the declaration."""
    was = _SYNCED | present
    will = _SYNCED | wanted
    return [_difference(was, will, key) for key in will if key not in was or was[key] != will[key]]


def _difference(present: Config, wanted: Config, key: str) -> Difference:
    found = present.get(key)
    other = wanted[key]
    lowers = key in SAFETY and key in present and SAFETY[key](other) < SAFETY[key](found)
    return Difference(
        wanted["name"], key, found, other, lowers=lowers, fixed=key in FIXED or _held(present, key)
    )


def _held(present: Config, key: str) -> bool:
    """A stream that is not synced has one copy: the server replicates no such stream."""
    return key == "num_replicas" and present.get("persist_mode") == "async"


def changed(present: Config, found: Sequence[Difference], *, lower: bool = False) -> Config:
    """A stream's settings with what differs as wanted; what is less safe only if told to."""
    return {
        **present,
        **{one.key: one.wanted for one in found if not one.fixed and (lower or not one.lowers)},
    }


def config_of(stream: Stream, replicas: int, *, clustered: bool = False) -> Config:
    """The body of STREAM.CREATE for one row of the table."""
    config: Config = {
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
        # a server that truncates a compressed stream damages its copy (docs/design/nats.md)
        "compression": "none",
        "allow_direct": True,
        "deny_delete": stream.name == subjects.JOURNAL.name,
    }
    if stream.kept_as:
        config["subject_transform"] = {"src": stream.subjects[0], "dest": stream.kept_as}
    if not stream.fsync and replicas == 1 and not clustered:
        config["persist_mode"] = (
            "async"  # overrides the server's `sync_interval: always` for this stream
        )
    return config


def bucket_config(bucket: str, replicas: int) -> Config:
    """An object store bucket in the layout every NATS tool knows."""
    return {
        "name": f"OBJ_{bucket}",
        "description": "whole objects in chunks, each with a digest",
        "subjects": [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
        **_of_bucket(replicas),
    }


def key_value_config(bucket: str, replicas: int) -> Config:
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


def _of_bucket(replicas: int) -> Config:
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
