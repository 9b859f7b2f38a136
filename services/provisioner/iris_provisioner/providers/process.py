"""The provider ``process``: a slice is workers on this machine, with real registrations.

Each slice has a directory with its record and those of its workers. Workers run in groups of their
own, so they outlive the provisioner; its next start finds them by their records. Source:
docs/design/fleet.md#orders-and-lists.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from iris_core import codec
from iris_core.messages.state_provisioner import FoundSlice, ProviderOptions, SliceOrder
from iris_provisioner.providers.provider import CallAnswer, ListFailed
from iris_provisioner.providers.slot_keys import NoKey, SlotKeys
from iris_service.slice_processes import RECORD, HostProcess, began, signal_hosts

log = logging.getLogger(__name__)

STOP_S = 15.0
"""How long workers may take to end before they are killed."""
NOTICE_S = "iris-notice-s"
"""The attribute in the metadata of a host that says how long after its notice it is there."""
_LOOK_S = 0.05
_TICK_S = 0.5


class SliceRecord(msgspec.Struct):
    """One slice, as its file has it.

    Attributes:
        start_at, preempt_at: seconds since the epoch; 0: it is never preempted. notice_s: how long
            after ``preempt_at`` it is still there. noticed: its hosts were told.
    """

    name: str
    label: int
    resources: dict[str, int]
    hosts: list[HostProcess]
    status: str = "creating"
    detail: str = ""
    start_at: float = 0.0
    preempt_at: float = 0.0
    notice_s: float = 0.0
    noticed: bool = False
    options: ProviderOptions = {}


class ProcessProvider:
    """The slices below one directory.

    Args:
        directory: holds one directory for each slice. common: settings of each worker,
            ``section.key``. config: an `iris.toml`; empty: none.
    """

    def __init__(
        self, directory: Path, keys: SlotKeys, common: Mapping[str, str], config: str = ""
    ) -> None:
        self._directory = directory
        self._keys = keys
        self._common = common
        self._config = config
        self._started: dict[int, subprocess.Popen[bytes]] = {}
        self._troubles: dict[str, str] = {}

    async def create(self, order: SliceOrder, epoch: int = 0) -> CallAnswer:
        known = self._read(order.slice)
        if known is not None:
            if known.label == order.label:
                return CallAnswer("accepted")
            return CallAnswer("failed", f"{order.slice} is there with number {known.label}")
        try:
            for host in order.hosts:
                self._keys.path(host.name)
        except NoKey as error:
            return CallAnswer("failed", str(error))
        options = order.options
        draw = random.Random(f"{options.get('seed', 0)}/{order.slice}/{order.label}")
        if draw.random() < _number(options, "refusal_chance"):
            return CallAnswer("exhausted", "refused by chance")
        now = time.time()
        record = SliceRecord(
            name=order.slice,
            label=order.label,
            resources=order.resources,
            hosts=[HostProcess(host.name, dict(host.attributes)) for host in order.hosts],
            start_at=now + _number(options, "boot_s"),
            notice_s=_number(options, "preemption_notice_s"),
            options=options,
        )
        fails = draw.random() < _number(options, "boot_failure_chance")
        if draw.random() < _number(options, "preemption_chance"):
            record.preempt_at = record.start_at + _number(options, "preemption_after_s", 60.0)
        if fails:
            record.status = "failed"
            record.detail = "its boot failed by chance"
        self._write(record)
        self.advance()
        return CallAnswer("accepted")

    async def delete(self, order: SliceOrder, epoch: int = 0) -> CallAnswer:
        record = self._read(order.slice)
        if record is None or record.label != order.label:
            return CallAnswer("accepted")
        if record.status != "deleting":
            record.status = "deleting"
            self._write(record)
        signal_hosts(record.hosts, signal.SIGTERM)
        if not await self._has_ended(record, STOP_S):
            signal_hosts(record.hosts, signal.SIGKILL)
            if not await self._has_ended(record, STOP_S):
                return CallAnswer("failed", "its workers do not end")
        await asyncio.to_thread(shutil.rmtree, self._directory / order.slice, ignore_errors=True)
        return CallAnswer("accepted")

    async def _has_ended(self, record: SliceRecord, within_s: float) -> bool:
        """Wait until the workers of a slice have ended, at most so long."""
        for _ in range(round(within_s / _LOOK_S)):
            if not self._alive(record):
                return True
            await asyncio.sleep(_LOOK_S)
        return not self._alive(record)

    async def listed(self, options: ProviderOptions) -> tuple[FoundSlice, ...]:
        """Raises ListFailed while the record of one cannot be read: it would be missing."""
        self.advance()
        try:
            records = self._records()
        except (OSError, codec.Undecodable) as error:
            raise ListFailed(f"the slices in {self._directory} cannot be read: {error}") from error
        return tuple(
            FoundSlice(one.name, one.label, status=one.status, detail=one.detail)
            for one in records
            if one.options == options
        )

    async def run(self) -> None:
        """Start and preempt slices when it is their time."""
        while True:
            self.advance()
            await asyncio.sleep(_TICK_S)

    def advance(self) -> None:
        """Have happened what is due by now; what the machine refuses to one slice is tried again."""
        now = time.time()
        with self._going_on(f"the slices in {self._directory}"):
            for name in self._names():
                with self._going_on(f"slice {name}"):
                    record = self._read(name)
                    if record is not None:
                        self._advance(record, now)

    @contextmanager
    def _going_on(self, what: str) -> Iterator[None]:
        """Log what the machine refuses to a slice, or to all, once until that is another trouble."""
        try:
            yield
        except (OSError, NoKey, codec.Undecodable) as error:
            if self._troubles.get(what) != str(error):
                log.warning("%s: cannot go on: %s", what, error)
            self._troubles[what] = str(error)
        else:
            self._troubles.pop(what, None)

    def _advance(self, record: SliceRecord, now: float) -> None:
        if record.status == "creating" and now >= record.start_at:
            self._start(record)
        elif record.status == "running":
            self._look(record, now)

    def _look(self, record: SliceRecord, now: float) -> None:
        if record.preempt_at and now >= record.preempt_at:
            self._take_away(record, record.preempt_at + record.notice_s - now)
            return
        ended = [host.name for host in record.hosts if not host.runs]
        if ended:
            self._reap()
            record.status = "failed"
            record.detail = f"the worker of {ended[0]} has ended"
            self._write(record)

    def _take_away(self, record: SliceRecord, left_s: float) -> None:
        """Tell the hosts of a slice how long they have, and end them when that is over."""
        if left_s > 0 and self._alive(record):
            if not record.noticed:
                record.noticed = True
                self._say(record, {"preempted": "TRUE", "attributes": {NOTICE_S: f"{left_s:.3f}"}})
                self._write(record)
            return
        signal_hosts(record.hosts, signal.SIGKILL)
        record.status = "preempted"
        record.detail = "taken away by chance"
        self._write(record)

    def _say(self, record: SliceRecord, metadata: dict[str, object]) -> None:
        """What hosts of a slice find in the place of a metadata server."""
        path = self._metadata(record.name)
        new = path.with_suffix(".new")
        new.write_bytes(codec.to_json(metadata))
        new.replace(path)

    def _metadata(self, name: str) -> Path:
        return self._directory / name / "metadata.json"

    # ── processes ─────────────────────────────────────────────────────────────────────────────────

    def _start(self, record: SliceRecord) -> None:
        place = self._directory / record.name
        self._say(record, {})
        for host in record.hosts:
            if host.runs:
                continue
            argv = self._argv(record, host, place)
            with (place / f"{host.name}.log").open("ab") as log:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._started[process.pid] = process
            host.pid = process.pid
            host.began = began(process.pid)
            self._write(record)
        record.status = "running"
        self._write(record)

    def _argv(self, record: SliceRecord, host: HostProcess, place: Path) -> Sequence[str]:
        amounts = {
            f"worker.{name}": str(amount) for name, amount in record.resources.items() if amount
        }
        attributes = ",".join(f"{key}={value}" for key, value in host.attributes.items())
        key = self._keys.path(host.name)
        given = {
            **self._common,
            **amounts,
            "worker.id": host.name,
            "worker.data": str(place / host.name),
            "worker.accelerators": "none",
            "worker.metadata_url": f"file:{self._metadata(record.name)}",
            "worker.attributes": attributes,
            **({"nats.nkey_seed": str(key)} if key is not None else {}),
        }
        argv = [sys.executable, "-P", "-m", "iris_worker"]
        argv += ["--config", self._config] if self._config else []
        return argv + [word for pair in given.items() for word in ("--set", "=".join(pair))]

    def _alive(self, record: SliceRecord) -> bool:
        self._reap()
        return any(host.runs for host in record.hosts)

    def _reap(self) -> None:
        """Take note of workers that have ended and that this process has started."""
        for pid, process in list(self._started.items()):
            if process.poll() is not None:
                del self._started[pid]

    # ── records ───────────────────────────────────────────────────────────────────────────────────

    def _records(self) -> list[SliceRecord]:
        """Raises OSError or Undecodable when one cannot be read."""
        return [one for one in map(self._read, self._names()) if one is not None]

    def _names(self) -> list[str]:
        """Those of slices that have a directory. Raises OSError."""
        try:
            return sorted(place.name for place in self._directory.iterdir())
        except FileNotFoundError:
            return []

    def _read(self, name: str) -> SliceRecord | None:
        """None: there is none. Raises OSError or Undecodable when there is one that cannot be
        read.
        """
        path = self._directory / name / RECORD
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return codec.from_json(data, SliceRecord)
        except codec.Undecodable as error:
            raise codec.Undecodable(f"{path}: {error}") from error

    def _write(self, record: SliceRecord) -> None:
        """Replace the record of a slice as a whole."""
        place = self._directory / record.name
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = place / f"{RECORD}.new"
        new.write_bytes(codec.to_json(record))
        new.replace(place / RECORD)


def _number(options: ProviderOptions, name: str, default: float = 0.0) -> float:
    value = options.get(name, default)
    return float(value) if isinstance(value, int | float) else default
