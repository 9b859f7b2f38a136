"""Encodes the whole ledger while the service runs, and decodes it.

Layout: magic, version, checksum; then three msgpack values, each with its length: everything but
the jobs, the compacted jobs, the others. Jobs are encoded in slices; a job that changes meanwhile
is encoded again, so the snapshot is as of its end. Out of scope: where snapshots are stored, and
when one is taken (`replication.snapshotter`). Source: docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

import gc
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import GenericAlias
from typing import Any

import msgspec
from sortedcontainers import SortedDict

from iris_core.quota import Quota
from iris_core.states import WorkerState
from iris_state.records import changes as c
from iris_state.records.compacted import CompactedTasks, encoder, is_compacted
from iris_state.records.deployments.records import Deployment
from iris_state.records.entities import Job, Totals
from iris_state.records.fleet.records import HostPool, Slice
from iris_state.records.hosts import Presence, Worker
from iris_state.records.indexes.usage_days import StoredSeries
from iris_state.records.ledger import Ledger
from iris_state.records.projects import Project
from iris_state.records.queue_holds import QueueHold
from iris_state.records.reactions import complete
from iris_state.records.shares import StoredShares

VERSION = 1
_MAGIC = b"IRISSNAP"
_HEAD = struct.Struct("<8sHIQQQ")
_PASSES = 3
_COMPACTED_TASKS = 50
"""So many compacted tasks are copied in the time in which one other task is encoded."""


class Damaged(Exception):
    """The bytes are not a snapshot, or are damaged."""


class OtherVersion(Exception):
    """The snapshot was written by another release and cannot be read."""


class Rest(msgspec.Struct, array_like=True):
    """Everything but the jobs. New fields go last, with a default.

    Attributes:
        sequence: the last commit in it.
        last_published: the id of the last event of that or an earlier commit.
        idempotency: keys of forgotten jobs first, each forgotten at its time in spent_ms.
        answers: the request, status, body and user of each.
        written: bytes of what the owner of each job wrote, which takes long to measure.
    """

    sequence: int
    at_ms: int
    last_published: str
    epoch: int
    next_number: int
    workers: list[Worker]
    quotas: list[Quota]
    idempotency: dict[str, int]
    answers: list[tuple[str, str, bytes, str]]
    nominations: list[tuple[int, int, str]]
    avoided: list[tuple[int, int, str, int]]
    totals: Totals
    spent_ms: list[int]
    deployments: list[Deployment]
    next_deployment: int
    discovery_version: int
    destroyed: list[int]
    audit: list[bytes]
    next_audit: int
    queue_holds: list[QueueHold]
    next_hold: int
    usage: list[tuple[int, bytes]]
    usage_series: list[StoredSeries]
    boots: dict[str, int]
    stored_day: int
    stored_today: dict[str, int]
    groups: dict[str, tuple[str, ...]]
    written: dict[int, int]
    pools: list[HostPool]
    slices: list[Slice]
    next_slice: int
    projects: list[Project]
    usage_of_projects: list[tuple[int, bytes]]
    usage_series_of_projects: list[StoredSeries]
    usage_of_pools: list[tuple[int, bytes]] = []
    usage_series_of_pools: list[StoredSeries] = []
    usage_of_slices: list[tuple[int, bytes]] = []
    usage_series_of_slices: list[StoredSeries] = []
    shares: StoredShares | None = None


def _compacted_form() -> Any:
    """A job whose tasks stay encoded."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(Job):
        kind = msgspec.Raw if field.name == "tasks" else field.type
        if field.default is not msgspec.NODEFAULT:
            fields.append((field.name, kind, field.default))
        elif field.default_factory is not msgspec.NODEFAULT:
            fields.append((field.name, kind, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append((field.name, kind))
    return msgspec.defstruct("SealedJob", fields, array_like=True)


_CompactedJob: Any = _compacted_form()
_decode_rest = msgspec.msgpack.Decoder(Rest).decode
_decode_compacted = msgspec.msgpack.Decoder(GenericAlias(list, (_CompactedJob,))).decode
_decode_open = msgspec.msgpack.Decoder(list[Job]).decode


class Cutter:
    """One snapshot in progress. Call it between rounds only, when everything applied is
    committed.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._todo = list(ledger.jobs)
        self._changed: set[int] = set()
        self._compacted: dict[int, bytes] = {}
        self._open: dict[int, bytes] = {}
        self._passes = 0

    def note(self, changes: Iterable[c.Change]) -> None:
        """The records that a commit changed must be encoded again."""
        for change in changes:
            react = self.REACTIONS.get(type(change))
            if react is not None:
                react(self, change)

    def _admitted(self, change: c.JobAdmitted) -> None:
        self._changed.add(change.number)

    def _job_changed(self, change: c.Moved) -> None:
        self._changed.add(change.job)

    def _queue_held(self, change: c.QueueHeld) -> None:
        """Every job that it holds has one more gate."""
        jobs = (self._ledger.jobs[number] for number in self._ledger.gates.gated)
        self._changed.update(
            job.number for job in jobs if any(gate.hold == change.number for gate in job.gates)
        )

    REACTIONS = complete(
        {
            c.JobAdmitted: _admitted,
            c.GatesOpened: _job_changed,
            c.JobAmended: _job_changed,
            c.QueueHeld: _queue_held,
            **dict.fromkeys(
                (
                    c.Requeued,
                    c.GraceEnded,
                    c.StopOrdered,
                    c.Noticed,
                    c.JobGrown,
                    c.JobClosed,
                    c.Evicted,
                ),
                _job_changed,
            ),
            **dict.fromkeys(
                (
                    c.Assigned,
                    c.Staged,
                    c.Moved,
                    c.Closed,
                    c.JobMoved,
                    c.SessionMoved,
                    c.Judged,
                    c.JobPruned,
                ),
                _job_changed,
            ),
        },
        nothing=(  # none of these is part of a job's record
            *(
                c.QueueReleased,
                c.Nominated,
                c.Avoided,
                c.WorkerRegistered,
                c.WorkerMoved,
                c.WorkerForgotten,
            ),
            *(c.QuotaSet, c.GroupsNoted, c.Answered, c.Dropped, c.Audited, c.Led),
            *c.DEPLOYMENT_KINDS,
            *c.FLEET_KINDS,
            *c.PROJECT_KINDS,
        ),
    )

    def work(self, tasks: int) -> bool:
        """Encode jobs with about so many tasks; True when `finish` can encode the rest."""
        for usage in self._ledger.every_usage:
            if usage.folding:
                tasks -= usage.fold()
        while tasks > 0 and self._todo:
            tasks -= self._encode(self._todo.pop())
        if not self._todo and self._changed and self._passes < _PASSES:
            self._passes += 1
            self._todo, self._changed = sorted(self._changed), set()
        if any(usage.folding for usage in self._ledger.every_usage):
            return False
        return not self._todo and (not self._changed or self._passes >= _PASSES)

    def finish(self, sequence: int, at_ms: int, last_published: str) -> Draft:
        """The snapshot of the ledger as it is now; its checksum is computed afterwards."""
        for number in {*self._changed, *self._todo}:
            self._encode(number)
        rest = encoder.encode(_rest(self._ledger, sequence, at_ms, last_published))
        return Draft([rest], _array(self._compacted), _array(self._open))

    def _encode(self, number: int) -> int:
        """Encode a job as it is now, or drop a deleted one; returns the amount of work in tasks."""
        self._compacted.pop(number, None)
        self._open.pop(number, None)
        job = self._ledger.jobs.get(number)
        if job is None:
            return 1
        if is_compacted(job):
            self._compacted[number] = encoder.encode(job)
            return 1 + len(job.tasks) // _COMPACTED_TASKS
        self._open[number] = encoder.encode(job)
        return 1 + len(job.tasks)


def _array(pieces: dict[int, bytes]) -> list[bytes]:
    return [
        b"\xdd" + struct.pack(">I", len(pieces)),
        *(pieces[number] for number in sorted(pieces)),
    ]


class Draft:
    """A snapshot in pieces, which no longer change, until its checksum is known."""

    def __init__(self, *parts: list[bytes]) -> None:
        self._sizes = [sum(map(len, part)) for part in parts]
        self._pieces = [piece for part in parts for piece in part]
        self._at = 0
        self._checksum = 0

    def work(self, size: int) -> bool:
        """Add about so many bytes to the checksum; True when it is complete."""
        while size > 0 and self._at < len(self._pieces):
            piece = self._pieces[self._at]
            self._checksum = zlib.crc32(piece, self._checksum)
            self._at += 1
            size -= len(piece)
        return self._at == len(self._pieces)

    def data(self) -> bytes:
        """The snapshot."""
        return b"".join((_HEAD.pack(_MAGIC, VERSION, self._checksum, *self._sizes), *self._pieces))


def _rest(ledger: Ledger, sequence: int, at_ms: int, last_published: str) -> Rest:
    return Rest(
        sequence=sequence,
        at_ms=at_ms,
        last_published=last_published,
        epoch=ledger.epoch,
        next_number=ledger.next_number,
        workers=list(ledger.workers.values()),
        quotas=list(ledger.quotas.values()),
        groups=dict(ledger.groups),
        idempotency={key: ledger.idempotency[key] for key in ledger.spent_keys}
        | ledger.idempotency,
        answers=[
            (request, status, body, ledger.answers.users[request])
            for request, (status, body) in ledger.answers.items()
        ],
        nominations=[(job, index, worker) for (job, index), worker in ledger.nominations.items()],
        avoided=[
            (*key, worker, until)
            for key, found in ledger.avoided.items()
            for worker, until in found.items()
        ],
        totals=ledger.totals,
        spent_ms=list(ledger.spent_keys.values()),
        deployments=list(ledger.deployments.values()),
        next_deployment=ledger.next_deployment,
        discovery_version=ledger.discovery_version,
        destroyed=list(ledger.destroyed),
        stored_day=ledger.stored.day,
        stored_today=dict(ledger.stored.today),
        audit=ledger.audit.stored(),
        next_audit=ledger.audit.next_number,
        queue_holds=list(ledger.queue_holds.values()),
        next_hold=ledger.next_hold,
        pools=list(ledger.fleet.pools.values()),
        slices=list(ledger.fleet.slices.values()),
        next_slice=ledger.fleet.next_number,
        usage=ledger.usage.stored(),
        usage_series=ledger.usage.stored_series(),
        projects=list(ledger.projects),
        usage_of_projects=ledger.project_usage.stored(),
        usage_series_of_projects=ledger.project_usage.stored_series(),
        usage_of_pools=ledger.pool_usage.stored(),
        usage_series_of_pools=ledger.pool_usage.stored_series(),
        usage_of_slices=ledger.slice_usage.stored(),
        usage_series_of_slices=ledger.slice_usage.stored_series(),
        shares=ledger.shares.stored(),
        boots=ledger.boots,
        written=ledger.written,
    )


def cut(ledger: Ledger, sequence: int, at_ms: int, last_published: str = "") -> bytes:
    """The snapshot of a ledger, in one step."""
    cutter = Cutter(ledger)
    while not cutter.work(1 << 30):
        pass
    draft = cutter.finish(sequence, at_ms, last_published)
    draft.work(1 << 62)
    return draft.data()


@contextmanager
def _without_collections() -> Iterator[None]:
    """Pause the collector of garbage while millions of records are made, among which it would
    search again and again; what is alive at the end is exempt (`iris_service.run.quiet_gc`).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()
            gc.enable()


class Image(msgspec.Struct):
    """A decoded snapshot."""

    rest: Rest
    compacted: Sequence[Any]
    open: Sequence[Job]


@_without_collections()
def read(data: bytes) -> Image:
    """Decode a snapshot. Raises Damaged, OtherVersion."""
    if len(data) < _HEAD.size:
        raise Damaged(f"{len(data)} bytes are not a snapshot")
    magic, version, checksum, *sizes = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise Damaged("it does not begin like a snapshot")
    if version != VERSION:
        raise OtherVersion(
            f"the snapshot has version {version}, this release knows {VERSION}; start the other release"
        )
    body = memoryview(data)[_HEAD.size :]
    if len(body) != sum(sizes) or zlib.crc32(body) != checksum:
        raise Damaged("its checksum does not match")
    rest = body[: sizes[0]]
    compacted = body[sizes[0] : sizes[0] + sizes[1]]
    try:
        return Image(
            _decode_rest(rest),
            _decode_compacted(compacted),
            _decode_open(body[sizes[0] + sizes[1] :]),
        )
    except msgspec.DecodeError as error:
        raise Damaged(f"it cannot be decoded: {error}") from error


@_without_collections()
def restore(ledger: Ledger, image: Image) -> None:
    """Fill an empty ledger."""
    rest = image.rest
    ledger.epoch = rest.epoch
    ledger.next_number = rest.next_number
    ledger.totals = rest.totals
    ledger.boots = rest.boots
    ledger.stored.day = rest.stored_day
    ledger.stored.today.update(rest.stored_today)
    ledger.idempotency = rest.idempotency
    for request, status, body, user in rest.answers:
        ledger.answers.keep(request, status, body, user)
    ledger.audit.restore(rest.audit, rest.next_audit)
    ledger.queue_holds = {hold.number: hold for hold in rest.queue_holds}
    ledger.next_hold = rest.next_hold
    for pool in rest.pools:
        ledger.fleet.pools[pool.name] = pool
    for one in rest.slices:
        ledger.fleet.add(one)
    ledger.fleet.next_number = rest.next_slice
    ledger.usage.restore(rest.usage, rest.usage_series)
    for project in rest.projects:
        ledger.projects.put(project)
    ledger.project_usage.restore(rest.usage_of_projects, rest.usage_series_of_projects)
    ledger.pool_usage.restore(rest.usage_of_pools, rest.usage_series_of_pools)
    ledger.slice_usage.restore(rest.usage_of_slices, rest.usage_series_of_slices)
    for worker in rest.workers:
        ledger.workers[worker.id] = worker
        presence = ledger.presence[worker.id] = Presence(rest.at_ms)
        ledger.host_sums.enter(worker, presence)
        if worker.state is WorkerState.LOST:
            ledger.miss(worker)
    ledger.lost.sort()
    ledger.quotas = {quota.user: quota for quota in rest.quotas}
    ledger.groups = rest.groups
    ledger.nominations = {(job, index): worker for job, index, worker in rest.nominations}
    jobs = [*map(_compacted_job, image.compacted), *image.open]
    for number, index, name, until in rest.avoided:
        ledger.avoided.setdefault((number, index), {})[name] = until
    jobs.sort(key=lambda job: job.number)
    ledger.names = {}  # sorted once at the end
    for record in jobs:
        record.children = []  # filled by the children, which name their parent
        if is_compacted(record):
            ledger.file_job(record, rest.written.get(record.number))
        else:
            ledger.index_job(record, rest.written.get(record.number))
        ledger.count_tasks(record, 1)
    ledger.names = SortedDict(ledger.names)
    ledger.index.restore(jobs)
    ledger.restore_shares(rest.shares, rest.at_ms)
    for line in ledger.timeouts.values():
        line.sort()
    _restore_spent_keys(ledger, rest)
    _restore_deployments(ledger, rest)


def _restore_spent_keys(ledger: Ledger, rest: Rest) -> None:
    """Of keys of forgotten jobs, which are the first ones: when each was forgotten."""
    for key, spent_ms in zip(rest.idempotency, rest.spent_ms, strict=False):
        ledger.spent_keys.spend(key, spent_ms)


def _restore_deployments(ledger: Ledger, rest: Rest) -> None:
    ledger.next_deployment = rest.next_deployment
    ledger.discovery_version = rest.discovery_version
    for deployment in rest.deployments:
        ledger.index_deployment(deployment)
    ledger.destroyed = dict.fromkeys(rest.destroyed)


def _compacted_job(stored: Any) -> Job:
    job = Job(*msgspec.structs.astuple(stored))
    job.tasks = CompactedTasks(bytes(stored.tasks), sum(job.counts))
    return job


def name_of(sequence: int) -> str:
    """The name of a snapshot, from its last commit."""
    return f"snapshot-{sequence:016d}"


def commit_of(name: str) -> int | None:
    """The commit in a snapshot's name; None for another name."""
    kind, _, sequence = name.partition("-")
    return int(sequence) if kind == "snapshot" and sequence.isdigit() else None
