"""What all users share, who may fill it, and what the others keep then.

docs/security.md is drawn from the table. Each row has a test that fills it as one user while
another works (tests/unit/state/test_shared_things.py). Out of scope: the
limits themselves (`quota`, settings of the services).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SharedThing:
    """A store, list, window, pool or counter of the whole cluster.

    Attributes:
        name: what is shared. filled_by: who may fill it, and with what.
        limits: what bounds it: keys of the configuration, or constants.
        kept: what the others keep when one user fills it.
        is_fair: whether one user can take nothing of it from others.
    """

    name: str
    filled_by: str
    limits: str
    kept: str
    is_fair: bool


SHARED_THINGS = (
    SharedThing(
        name="finished jobs",
        filled_by="any user, with jobs",
        limits="`[state] keep_jobs`, `keep_jobs_bytes`",
        kept="their finished jobs: the oldest of the user who has most is deleted",
        is_fair=True,
    ),
    SharedThing(
        name="audit",
        filled_by="any user, with commands",
        limits="`[state] keep_audit_bytes`",
        kept="their entries: the oldest of the user who has most is deleted, those of admins last",
        is_fair=True,
    ),
    SharedThing(
        name="memory of live jobs",
        filled_by="any user, with large specifications",
        limits="`[state] max_live_bytes`, `iris quota set --max-live-bytes SIZE USER`",
        kept="their own limit: more of the user is refused",
        is_fair=True,
    ),
    SharedThing(
        name="waiting tasks",
        filled_by="any user, with tasks",
        limits="`[state] max_pending_tasks`, `iris quota set --max-pending-tasks N USER`",
        kept="their own limit: more of the user is refused",
        is_fair=True,
    ),
    SharedThing(
        name="starts on a host",
        filled_by="any user, with tasks that prepare for long",
        limits="`[state] max_building` of each host",
        kept="an equal share of it, one start at a time at least, until three windows prepare on that host",
        is_fair=True,
    ),
    SharedThing(
        name="sums of usage",
        filled_by="any user, with jobs of many projects",
        limits="256 sums of a user and day",
        kept="all of theirs: further projects of the user are summed as `(others)`",
        is_fair=True,
    ),
    SharedThing(
        name="reads that wait",
        filled_by="any user, with requests",
        limits="1,000 of each user; `[state] read_timeout_s`",
        kept="their turn: users are answered in turn",
        is_fair=True,
    ),
    SharedThing(
        name="capacity of a better band",
        filled_by="any user, with jobs that preempt others",
        limits="`[state] max_band`, `iris quota set --max-band production USER`",
        kept="their band: a plain user asks for `interactive` at best until an admin allows more",
        is_fair=True,
    ),
    SharedThing(
        name="answers to repeated requests",
        filled_by="any user, with commands",
        limits="`[state] keep_answers`, `keep_answers_bytes`",
        kept="their answers: beyond the number the oldest of the user who has most is deleted, "
        "beyond the memory of the one who has most of that; a request repeated later is judged anew",
        is_fair=True,
    ),
    SharedThing(
        name="idempotency keys of deleted jobs",
        filled_by="any user, with jobs",
        limits="`[state] keep_keys_bytes`, `keep_keys_days`",
        kept="their keys: the oldest of the user who has most is deleted",
        is_fair=True,
    ),
    SharedThing(
        name="bundles",
        filled_by="any user, with code",
        limits="`[state] keep_bundles_bytes`, `[gateway] bundles_bytes`",
        kept="theirs, and room for their own: unused ones of the user who has most are deleted, the oldest "
        "first, and once half of the room is used one user has a fifth of it at most",
        is_fair=True,
    ),
    SharedThing(
        name="artifacts",
        filled_by="any user, with what tasks leave in their output directories",
        limits="`[nats] artifacts_bytes`, `artifacts_days`",
        kept="their artifacts: from 85% on those of the user who has most are deleted, of ended jobs, "
        "the oldest first",
        is_fair=True,
    ),
    SharedThing(
        name="output of tasks",
        filled_by="any user, with what tasks print",
        limits="`[nats] logs_bytes`, `logs_days`",
        kept="their output: from 85% on that of the user who has most is deleted, of ended jobs first, "
        "the oldest first; of a job with much of it the newest stays at first",
        is_fair=True,
    ),
    SharedThing(
        name="results of calls",
        filled_by="any user, with what calls return",
        limits="`[nats] results_bytes`, `results_days`",
        kept="their results: from 85% on those of the user who has most are deleted, of ended jobs "
        "first, the oldest first",
        is_fair=True,
    ),
    SharedThing(
        name="deployments",
        filled_by="any user",
        limits="`[state] max_deployments`, `max_deployments_of_user`",
        kept="theirs, and room for their own: by default one user has a fifth of all at most",
        is_fair=True,
    ),
    SharedThing(
        name="streams of events and logs",
        filled_by="any user, with watchers",
        limits="`[gateway] watchers`, `watchers_per_user`",
        kept="theirs, and room for their own: by default one user has two fifths of all at most",
        is_fair=True,
    ),
    SharedThing(
        name="connections",
        filled_by="who reaches a gateway, also without a token",
        limits="`[gateway] connections_per_address`, the descriptors of the process",
        kept="those of other addresses, where descriptors are more than one address may have; who is "
        "behind the same address or proxy shares with it",
        is_fair=True,
    ),
    SharedThing(
        name="holds on the queue",
        filled_by="any user, for the own jobs",
        limits="100 of users, 20 of each; 100 of admins",
        kept="room for their own; admins also where users have all of theirs",
        is_fair=True,
    ),
    SharedThing(
        name="uploads in progress",
        filled_by="any user, with code",
        limits="`[gateway] uploads_per_user`, `bundle_bytes`; 4 GiB of a gateway",
        kept="room for their own: by default one user has a quarter of it at most",
        is_fair=True,
    ),
    SharedThing(
        name="commands beside tasks of a host",
        filled_by="any user, with `iris exec`, terminals and ports",
        limits="`[worker] exec_at_once`",
        kept="half of it: while others ask, one of a user who has more is ended",
        is_fair=True,
    ),
    SharedThing(
        name="places on hosts, and slices of pools",
        filled_by="any user, with tasks that run long; a pool grows for them up to its `max`",
        limits="`iris quota set --max-running-cpu N USER`, and likewise memory and devices; for who has none of "
        "the own `[state] max_running_cpu_millis` and so on; `iris project set` with `--guarantee`, `--limit`, "
        "`--weight`",
        kept="with a limit, the next place that is free: who is over it comes behind all others of the band; "
        "with weights of projects, the next one by shares; without any, their turn in the order of submission. "
        "What runs is stopped for a better band and for a guarantee of the own project only, so an admin's job in "
        "`production` starts at once. Free places are given to whoever waits: one user is often most of a cluster",
        is_fair=False,
    ),
    SharedThing(
        name="events",
        filled_by="any user, with tasks that change",
        limits="`[nats] events_bytes`, `events_days`; what makes events: `[gateway] requests_per_s`, "
        "`max_pending_tasks`",
        kept="jobs and tasks as they are, and the newest events of all, by default eight million; of a full "
        "stream the oldest go, whoever's they are. They are one order that all readers follow, in which a "
        "hole would pass unnoticed: who asks for what is gone is answered 410",
        is_fair=False,
    ),
    SharedThing(
        name="commands under way",
        filled_by="any user, with commands",
        limits="256 and 16 MiB of a gateway, half of them of one user; 4,000 and 64 MiB of the leader; "
        "`[gateway] requests_per_s`",
        kept="half of a gateway's, and their turn there: who has least under way is next; who has all of "
        "the own half is told so",
        is_fair=True,
    ),
    SharedThing(
        name="environments and code on a host",
        filled_by="any user, with packages, setup commands and bundles",
        limits="`[worker] environments_kept`, `environments_bytes`, `bundles_kept`; 1 GiB of files of maps",
        kept="those in use, and an equal share: what is unused for longest of the user who has most is "
        "deleted, and built or fetched again",
        is_fair=True,
    ),
    SharedThing(
        name="memory of templates on a host",
        filled_by="any user, with maps and jobs that preload modules",
        limits="of templates that run nothing: 1 GiB together, or a sixteenth of the host's memory where that "
        "is more; 30 s each",
        kept="the memory beyond it, and their templates: that of the user who has most which is unused for "
        "longest ends first",
        is_fair=True,
    ),
    SharedThing(
        name="bundles being fetched on a host",
        filled_by="any user, with large bundles",
        limits="`[worker] bundles_at_once`, half of them of one user",
        kept="half of it: who has least under way is next",
        is_fair=True,
    ),
    SharedThing(
        name="output directories being stored on a host",
        filled_by="any user, with large output directories",
        limits="`[worker] artifacts_at_once`, half of them of one user; `artifact_timeout_s`",
        kept="half of it: who has least under way is next; small ones have places of their own",
        is_fair=True,
    ),
    SharedThing(
        name="probes that run on a host",
        filled_by="any user, with deployments whose probes are slow",
        limits="32 of a host, 16 of each user",
        kept="half of it: the longest overdue first; what was not probed has not failed",
        is_fair=True,
    ),
    SharedThing(
        name="connections of a proxy",
        filled_by="clients of any deployment",
        limits="`[proxy] max_connections`, three quarters of them for requests to deployments of one user",
        kept="a quarter of them for requests to deployments of others; a connection that has been idle for "
        "a second is closed where a new one has no room",
        is_fair=True,
    ),
    SharedThing(
        name="messages to targets",
        filled_by="any user, with jobs that name slow targets",
        limits="16 sent at a time, 4 of each user; 20 targets of a user, 500 messages waiting for one, 1,000 kept",
        kept="12 places, and all of their messages",
        is_fair=True,
    ),
    SharedThing(
        name="links that sign in a browser",
        filled_by="any user",
        limits="1,000 of a gateway, 20 of each user",
        kept="theirs: with one more the oldest of the same user is void",
        is_fair=True,
    ),
)
"""A row that is not fair says why it is not, and what the others keep."""
