"""What a worker and its launcher tell each other, and what the launcher keeps on disk. Types.

The launcher may be older than the worker: positions are fixed, and new fields go last, with a
default. Out of scope: their encoding (frames), the file (store), the socket (launcher, client).
"""

from __future__ import annotations

import signal

import msgspec

from iris_core.messages.gateway_worker import CallResult
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import GivenNotice, LiveUsage, Stage, TaskUsage
from iris_core.spec.jobs import NoticePolicy, Probe
from iris_worker.launcher.cgroups.files import Cgroup, CgroupSupport
from iris_worker.launcher.cgroups.limits import Limits

SOCKET = "launcher"
"""The file in the worker's directory on which its launcher listens."""
VERSION = 1
"""What this launcher understands; a request that it did not know before makes it one more."""
NEEDED = 1
"""What a worker needs its launcher to understand."""
STOPS_OTHERS = "it stopped what was started beside it, and was ended"
"""Why an attempt was ended that stops the processes of its user."""


class _Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The base of all records: immutable, fields by position."""


class Exit(_Record, frozen=True):
    """How a process ended.

    Attributes:
        known: False when another process than its parent saw the end.
        error: why it could not be started, in words for a person; then ``code`` is a shell's for
            the mistake of its owner, and None for a fault of this host.
        result: of a call whose process may make another; empty: it is in a file, or there is none.
        full: attempts have left so many files in the memory of its slot that no further one may
            have that.
        of_host: it could not be started for a fault of this host that its program has no part in.
        sampled: its memory limit, which ``usage`` has, was found passed by a sample.
    """

    code: int | None = None
    signal: int | None = None
    peak_rss_bytes: int = 0
    known: bool = True
    error: str = ""
    usage: TaskUsage | None = None
    result: bytes = b""
    full: bool = False
    of_host: bool = False
    sampled: bool = False


class StoredProbe(_Record, frozen=True):
    """How an attempt is probed.

    ``env`` and ``limits``: of the probe's command, if it is one. ``serves``: the name of the port
    of requests. ``settle_ms``: of the route.
    """

    probe: Probe
    serves: str = ""
    env: dict[str, str] = {}
    limits: Limits = ()
    settle_ms: int = 0


class Sandbox(_Record, frozen=True):
    """How an attempt's processes are confined, as `Confine` says: as which user (without one, the
    launcher's), and with which device files.

    ``reads`` and ``writes``: further directories that they see, the latter to write. ``of_pool``:
    the user is of a pool, and nobody works on this host as that user.
    """

    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    of_pool: bool = False


class StoredContainer(_Record, frozen=True):
    """The container that an attempt's process is the client of, and its memory limit; 0: none."""

    runtime: str
    name: str
    memory_limit_bytes: int = 0


# ── records ───────────────────────────────────────────────────────────────────────────────────────


class StoredEnvironment(_Record, frozen=True):
    """The virtual environment of an attempt: its directory, and whether the process builds it."""

    directory: str
    building: bool = False


class Started(_Record, frozen=True, tag="started"):
    """An attempt's first process: the interval (monotonic time of this boot) in which it was
    started, its slot, its ports by name, the indices of its devices, its control group, its output
    directory, the name of its directory below the slot's. Without a ``pid``, and then without
    times, it is about to be started. Without a ``sandbox`` it is not confined. ``call``: it is one
    of a map. ``early``: the output of the attempt that had its slot before is perhaps not stored. ``trace``
    of its order and the name of its ``task`` are for its spans. ``stop_signal`` stops it.
    ``terminal``: it reads and writes one, which the launcher holds. ``notice``: what it is told
    before it is stopped. ``deadline_s``: when the time limit of its gang is over; 0: it has its
    own. ``user``: who has submitted its job.

    A process that builds the attempt's ``environment`` has a record of its own, before that of the
    attempt. The client of a ``container`` may end before it.
    """

    ref: AttemptRef
    pid: int
    slot: int
    after_s: float
    before_s: float
    at_ms: int
    timeout_ms: int | None
    ports: dict[str, int] = {}
    probe: StoredProbe | None = None
    devices: tuple[int, ...] = ()
    environment: StoredEnvironment | None = None
    sandbox: Sandbox | None = None
    cgroup: Cgroup | None = None
    container: StoredContainer | None = None
    output: str = ""
    directory: str = ""
    call: bool = False
    trace: str = ""
    task: str = ""
    stop_signal: int = int(signal.SIGTERM)
    early: bool = False
    terminal: bool = False
    notice: NoticePolicy | None = None
    deadline_s: float = 0.0
    sampled_limit_bytes: int = 0
    user: str = ""

    @property
    def below(self) -> str:
        """Where its directory and output are, below those of all slots."""
        return f"{self.slot}/{self.directory}"


class Spawned(_Record, frozen=True, tag="spawned"):
    """It was started; fields as in `Started`. A reused process was started before. ``note``: why it
    is not reused.
    """

    ref: AttemptRef
    pid: int
    after_s: float
    before_s: float
    at_ms: int
    cgroup: Cgroup | None = None
    note: str = ""


class NoticeRecord(_Record, frozen=True, tag="notice"):
    """It is given a notice: the file says so, and the signal follows."""

    ref: AttemptRef
    notice: GivenNotice


class Exited(_Record, frozen=True, tag="exited"):
    """It and all its descendants have ended, or it could not be started."""

    ref: AttemptRef
    exit: Exit


class Over(_Record, frozen=True, tag="over"):
    """The end of an attempt as the worker reports it; ``result``: what it left, of a call."""

    stage: Stage
    result: CallResult | None = None


class Read(_Record, frozen=True, tag="read"):
    """Its output up to these positions is stored."""

    ref: AttemptRef
    out: int
    err: int


class Gone(_Record, frozen=True, tag="gone"):
    """The ends of these attempts are acknowledged, so their records are obsolete."""

    refs: tuple[AttemptRef, ...]


class Boot(_Record, frozen=True, tag="boot"):
    """The first record of the file: process ids and times are of this boot of the host."""

    boot: str


ProcessRecord = Started | Spawned | NoticeRecord | Exited | Over | Read | Gone | Boot

# ── requests of the worker ────────────────────────────────────────────────────────────────────────


class StartProcess(_Record, frozen=True, tag="start"):
    """Record an attempt, then start its process; answered by `Spawned` or `Exited`.

    ``cgroup``: the limits of its control group; None: it has none. ``template``: by whose clone it
    is to be started; where that is not there it is started by its command. ``reuse``: how many
    calls its process may make, one attempt each. ``restores``: it may make any number, and restores
    its memory after each, where the host can.
    """

    record: Started
    command: tuple[str, ...]
    env: dict[str, str]
    limits: Limits = ()
    cgroup: Cgroup | None = None
    template: str = ""
    reuse: int = 1
    restores: bool = False


class StartTemplate(_Record, frozen=True, tag="start-template"):
    """Start a template, a process from which attempts are cloned; answered by `TemplateState`, also
    when it is there.

    ``directory``: of the attempt that waits for it, below those of all slots; what preloading
    prints is its output. ``preload``: modules. ``function``: it calls the function in that
    directory, otherwise it runs scripts. ``accelerators``: further device files that a template may
    not have open. ``bare``: the key of the bare template that it is made from, which is started if
        it is not there; that of ``key``
    itself: only that is wanted. ``restores``: its clones are to restore their memory. ``library``:
    the file of what does that, or empty, and ``no_library`` says why there is none. ``checks``:
    whether each restore is verified. ``user``: who has submitted its job.
    """

    key: str
    slot: int
    directory: str
    command: tuple[str, ...]
    env: dict[str, str]
    preload: tuple[str, ...] = ()
    function: bool = False
    limits: Limits = ()
    cgroup: Cgroup | None = None
    sandbox: Sandbox | None = None
    accelerators: tuple[str, ...] = ()
    bare: str = ""
    restores: bool = False
    library: str = ""
    no_library: str = ""
    checks: bool = False
    user: str = ""


class EndTemplate(_Record, frozen=True, tag="end-template"):
    """Kill a template; what was cloned from it goes on. Nothing when it is not there."""

    key: str


class EmptySlot(_Record, frozen=True, tag="empty-slot"):
    """An attempt of another job is to have a slot, in which nothing runs: kill what waits there
    without an attempt, templates and reused processes; answered by `SlotEmptied` once all of it is
    gone.

    ``kept``: the key of a bare template that may stay. ``uid``: a user who has nothing but this
    slot; None: there is none.
    """

    slot: int
    kept: str = ""
    uid: int | None = None


class Confine(_Record, frozen=True, tag="confine"):
    """How attempts are confined from now on; answered by `Confined`.

    ``bubblewrap``: the program and its arguments for the namespaces of a slot; empty: there are
    none. ``tokens``: has a directory for each slot, which is visible in these. ``scopes_sockets``:
        abstract sockets, where the kernel can.
    """

    bubblewrap: tuple[str, ...] = ()
    no_new_privileges: bool = False
    tokens: str = ""
    scopes_sockets: bool = False


class HoldFile(_Record, frozen=True, tag="hold-file"):
    """Keep the descriptor that comes with this request while the launcher lives: what it locks
    stays locked while tasks run.
    """


class GiveNotice(_Record, frozen=True, tag="give-notice"):
    """Record a notice, then send the whole group its signal; nothing when one of this reason was
    recorded before.
    """

    record: NoticeRecord


class StopProcess(_Record, frozen=True, tag="stop"):
    """Send the whole group its stop signal after ``settle_ms``, and KILL ``grace_ms`` later unless
    it has ended.

    ``noticed``: without the stop signal, because a notice has taken its place.
    """

    ref: AttemptRef
    grace_ms: int
    settle_ms: int
    noticed: bool = False


class KillAll(_Record, frozen=True, tag="kill-all"):
    """Kill all attempts without a grace period."""


class SpawnCommand(_Record, frozen=True, tag="spawn-command"):
    """Start a command beside an attempt's process, in its directory; it ends with the attempt, and
    with the worker. Answered by `CommandExited`.

    The descriptors for its standard input, output and error come with the message; with ``tty``
    one, of the terminal that it controls. ``number``: of the worker's choice. ``inherits``: its
    environment is ``env`` on top of that of the attempt's process.
    """

    ref: AttemptRef
    number: int
    command: tuple[str, ...]
    env: dict[str, str] = {}
    limits: Limits = ()
    inherits: bool = False
    tty: bool = False


class SignalCommand(_Record, frozen=True, tag="signal-command"):
    """Signal the process group of such a command; nothing when it has ended."""

    number: int
    signal: int


class OpenTerminal(_Record, frozen=True, tag="open-terminal"):
    """Send the terminal of an attempt to the socket that comes with the message, and close that;
    without one only close it.
    """

    ref: AttemptRef


class PingLauncher(_Record, frozen=True, tag="ping"):
    """Answered by `Pinged`, after the requests before it."""


LauncherRequest = (
    Confine
    | StartProcess
    | StartTemplate
    | EndTemplate
    | EmptySlot
    | GiveNotice
    | StopProcess
    | KillAll
    | SpawnCommand
    | SignalCommand
    | OpenTerminal
    | PingLauncher
    | HoldFile
    | Over
    | Read
    | Gone
)

# ── answers of the launcher ───────────────────────────────────────────────────────────────────────


class Ready(_Record, frozen=True, tag="ready"):
    """The worker has been sent the records of all attempts. ``version``: what it understands,
    `VERSION`.
    """

    cgroups: CgroupSupport
    version: int


class Confined(_Record, frozen=True, tag="confined"):
    """It was tried; ``error``: why it does not work, ``unscoped``: why the kernel scopes no
    sockets, for a person.
    """

    error: str = ""
    unscoped: str = ""


class CommandExited(_Record, frozen=True, tag="command-exited"):
    """A command beside an attempt has ended, or could not be started."""

    number: int
    exit: Exit


class TemplateState(_Record, frozen=True, tag="template"):
    """What has become of a template: ``ready`` to be cloned, or why it cannot be, for a person.

    ``failed``: preloading has, which is its owner's failure. Without ``text`` it has ended, and may
    be started again. ``directory``: with ``text``, that of the attempt for which it was started,
    below those of all slots: when that attempt was stopped, its missing directory may be the
        reason, and the template is started again for another one.
    """

    key: str
    ready: bool = False
    failed: bool = False
    text: str = ""
    directory: str = ""


class SlotEmptied(_Record, frozen=True, tag="slot-emptied"):
    """Nothing is left in a slot; ``text``: why something is, for a person."""

    slot: int
    text: str = ""


class Measured(_Record, frozen=True, tag="measured"):
    """What running attempts use, sent at intervals."""

    usage: tuple[LiveUsage, ...]


class StoreTrouble(_Record, frozen=True, tag="trouble"):
    """The records cannot be written, or can be again: then ``text`` is empty."""

    text: str


class Pinged(_Record, frozen=True, tag="pinged"):
    """The launcher serves requests."""


LauncherAnswer = (
    Confined
    | TemplateState
    | SlotEmptied
    | Started
    | Spawned
    | NoticeRecord
    | Exited
    | Over
    | Read
    | Ready
    | Measured
    | CommandExited
    | StoreTrouble
    | Pinged
)
