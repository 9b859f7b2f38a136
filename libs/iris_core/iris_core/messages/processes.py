"""What each process says about itself, and the leader about its position."""

from __future__ import annotations

from iris_core.messages.message import ServiceMessage
from iris_core.messages.scheduler_state import JobReason


class MissingReasons(ServiceMessage, frozen=True):
    """Asked with a ping: waiting jobs whose reasons a follower does not know."""

    jobs: tuple[int, ...] = ()


class Ping(ServiceMessage, frozen=True):
    """Sent by the leader: its id, since when it leads, its position, and the id of the last
    published event.

    ``reasons``: of jobs that were asked for, as many as fit. ``now_ms``: its time of records; 0
    from a release that does not tell.
    """

    leader: str = ""
    epoch: int = 0
    sequence: int = 0
    ready: bool = True
    last_published: str = ""
    reasons: tuple[JobReason, ...] = ()
    now_ms: int = 0


class ReplicaInfo(ServiceMessage, frozen=True):
    """What a replica of the state service does.

    Attributes:
        leads: whether it leads. epoch: of the newest leader it knows. sequence: the last commit it
            has applied.
        behind: commits of the leader that it has not applied. unpublished: events that their stream
            has not confirmed.
        stored_bytes: what each store holds, from the leader only.
        times_ahead_s: its times of records less its wall clock; None from a release that does not
            tell.
    """

    leads: bool = False
    epoch: int = 0
    sequence: int = 0
    behind: int = 0
    unpublished: int = 0
    stored_bytes: dict[str, int] = {}
    times_ahead_s: float | None = None


FIRST_CLUSTER_NAME = "iris"
"""What a cluster is called until it is given a name."""
NO_TOKEN_FILE = "none"
"""What stands in `ServiceInfo.tokens` for a gateway without a token_file."""


class ServiceInfo(ServiceMessage, frozen=True):
    """A process describes itself.

    Attributes:
        service: as ``iris server`` calls it. id: unique per start.
        started_ms: the wall time of its start.
        configuration: its settings with their origins as TOML, without secrets.
        replica: of the state service only.
        tokens: of a gateway only: a digest of the tokens it accepts from its token_file,
            NO_TOKEN_FILE without one.
        now_ms: its clock when it answered; 0 from a release that does not tell.
        certificates: by the path of each of its certificates, when it expires (Unix, s).
    """

    service: str
    id: str
    version: str
    host: str
    pid: int
    started_ms: int
    configuration: str = ""
    replica: ReplicaInfo | None = None
    tokens: str = ""
    now_ms: int = 0
    certificates: dict[str, float] = {}
