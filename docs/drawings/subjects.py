"""docs/subjects.md: every stream, then every subject, as `iris_core.subjects` declares them."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from drawings.docstrings import prose
from drawings.fields import answer_table
from drawings.markdown import document, grid
from iris.client.http.events import Event
from iris_core import subjects
from iris_core.access.roles import ACCOUNT, ROLES, BusRole, Login, permissions

EXPLAINED = (
    "The subjects of the stream `IRIS_EVENTS`, such as `job.state.succeeded`, are for others to subscribe to; every "
    "other subject is internal and may change between releases. Names of jobs, tasks and workers stand in it "
    "only as tokens derived from them."
)


ROLES_EXPLAINED = (
    "What each login of the NATS server may do ([why](adr/0030-one-account-per-worker.md)), drawn from "
    "`iris_core.access.roles`; `ID` is a worker's token. Each hears the answers to its own requests. Of a store, *get* "
    "is single messages, *read* also to follow it, *put* also to replace objects, *declare* also to create and trim "
    "it, *replace* also to delete it."
)


EVENTS_EXPLAINED = (
    "One message for each stored change, in the order of the changes of a task. The body is JSON. `state` is the last "
    "token of a subject `*.state.*`, `previous` the state before, null for a new object. Amendments and notices change "
    "no state: both are the present one. `cause` is why, `at_ms` when, in ms "
    "since 1970, `by` whose command caused it, left out without one. `seq` is the position in the journal of the "
    "commit that holds the change. The header `Nats-Msg-Id` is `seq` and the event's place in that commit, `12.0`: an "
    "event that is published again has the same. Other headers: `Iris-Job`, `Iris-Task`, `Iris-Attempt`, "
    "`Iris-Deployment`, and `traceparent` of the submission where it has one."
)


def event_sections() -> list[str]:
    """The body of each public event, and of each object in one: its fields and their types."""
    parts = []
    within: dict[str, Any] = {}
    for kind in get_args(Event):
        objects = dict(msgspec.json.schema(kind)["$defs"])
        parts += [f"### {kind.__name__}", *prose(kind.__doc__)]
        parts.append(answer_table(objects.pop(kind.__name__)))
        within |= objects
    for name, schema in within.items():
        parts += [f"### {name}", *prose(schema.get("description")), answer_table(schema)]
    return parts


def role_row(role: BusRole) -> tuple[str, ...]:
    may = permissions(Login(role.name, "ID" if role.alone else ""))
    return (
        role.name,
        "its own" if role.alone else f"`{ACCOUNT}`",
        " ".join(f"`{subject}`" for subject in may.publish if not subject.startswith("$JS.API."))
        or "nothing",
        " ".join(f"`{subject}`" for subject in may.subscribe) or "nothing",
        ", ".join(f"`{store}` {what}" for store, what in role.stores.items()) or "none",
    )


def limits(stream: subjects.Stream) -> str:
    said = {
        "days": stream.max_age_s // subjects.DAY_S,
        "GiB": stream.max_bytes // subjects.GIB,
    }
    return ", ".join(f"{amount} {unit}" for unit, amount in said.items() if amount) or "none"


def subjects_document() -> str:
    """Every stream, then every subject, as `iris_core.subjects` declares them."""
    streams = grid(
        ("stream", "subjects", "on disk before it is acknowledged", "when full", "limits", "why"),
        (
            (
                f"`{s.name}`",
                " ".join(f"`{subject}`" for subject in s.subjects),
                "yes" if s.fsync else "no",
                "refuses" if s.discard_new else "forgets the oldest",
                limits(s),
                s.why,
            )
            for s in subjects.STREAMS
        ),
    )
    rows = grid(
        ("subject", "kept", "written by", "read by", "message"),
        (
            (f"`{s.pattern}`", s.kept.value, s.writer, s.reader, f"`{s.message}`")
            for s in subjects.SUBJECTS
        ),
    )
    return document(
        "Subjects and streams",
        "iris_core.subjects",
        EXPLAINED,
        "## Streams",
        streams,
        f"Whole objects are kept in the buckets `{subjects.SNAPSHOTS_BUCKET}` and `{subjects.BUNDLES_BUCKET}`.",
        f"The bucket `{subjects.DISCOVERY_BUCKET}` of values by key holds where each deployment answers, as JSON "
        f"(`Discovery`) under its name: the state service's leader writes it, the proxy and the gateway read it. "
        f"The bucket `{subjects.KEYS_BUCKET}` holds the keys that sign tokens of tasks: the leader writes it, and the "
        "gateway reads it. "
        f"The bucket `{subjects.NOTIFY_BUCKET}` holds the records of the notifier, which alone reads and writes it.",
        "## Subjects",
        rows,
        "## Events",
        EVENTS_EXPLAINED,
        *event_sections(),
        "## Roles",
        ROLES_EXPLAINED,
        grid(("role", "account", "publishes", "subscribes to", "stores"), map(role_row, ROLES)),
    )
