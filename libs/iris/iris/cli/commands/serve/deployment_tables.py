"""Prints deployments and their routes: tables, fields, and sentences about faults."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click

from iris.cli.output.tables import Column, Row, print_facts, print_table, reason_words, state_word
from iris.cli.output.times import age, show_moment
from iris_core.codec import from_builtins
from iris_core.spec.serving import ScalingPolicy
from iris_core.units import counted

_DECISIONS_SHOWN = 10

DEPLOYMENTS = (
    Column("NAME", lambda row: row["name"]),
    Column("STATUS", lambda row: state_word(row["status"])),
    Column("READY", lambda row: f"{row['ready']}/{row['replicas']}", right=True),
    Column("REVISION", lambda row: str(row["revision"]), right=True, gives=3),
    Column("USER", lambda row: row["user"], gives=1),
    Column("SINCE", lambda row: age(row["since"]), right=True, gives=2),
    Column("ID", lambda row: row["id"], wide=True),
    Column("VERSION", lambda row: str(row["version"]), wide=True, right=True),
    Column(
        "CONDITIONS", lambda row: ", ".join(one["code"] for one in row["conditions"]), wraps=True
    ),
)


def why_not(route: Row) -> str:
    """Why a route does not serve, or has ended."""
    return route["detail"] or reason_words(route)


ROUTES = (
    Column("ROUTE", lambda route: route["id"]),
    Column("STATUS", lambda route: state_word(route["status"])),
    Column("REVISION", lambda route: str(route["revision"]), right=True, gives=2),
    Column("WORKER", lambda route: route["worker"] or ""),
    Column("ADDRESS", lambda route: route["address"] or "", gives=3),
    Column("SERVES", lambda route: "yes" if route["discovered"] else "no"),
    Column("SINCE", lambda route: age(route["since"]), right=True, gives=1),
    Column("JOB", lambda route: route["job"], wide=True),
    Column("WHY", why_not, wraps=True),
)


def print_deployment(found: Row, form: str) -> None:
    """Print the fields, the conditions, and the routes that have not ended."""
    template = found["spec"]["template"]
    print_facts(
        [
            ("deployment", f"{found['name']}  ({found['id']})"),
            ("status", f"{state_word(found['status'])} for {age(found['since'])}"),
            ("routes", f"{found['ready']} of {found['replicas']} serve"),
            ("revision", revisions(found)),
            ("update", standing(found["update"])),
            ("scaling", scaling_rule(found)),
            ("user", found["user"]),
            ("command", shlex.join(template["command"])),
            ("created", show_moment(found["created_at"])),
        ]
    )
    for line in (*scaling_lines(found), *condition_lines(found)):
        click.echo(line)
    routes = [route for route in found["routes"] if form == "wide" or route["status"] not in ENDED]
    if routes:
        click.echo()
        print_table(routes, ROUTES, wide=form == "wide")


ENDED = frozenset({"terminated", "failed_to_start"})


def revisions(found: Row) -> str:
    """``3 (stable: 2; kept: 1, 2, 3)``."""
    stable = found["stable_revision"]
    return f"{found['revision']}  (stable: {stable or 'none'}; kept: {', '.join(map(str, found['revisions']))})"


def standing(update: Row | None) -> str:
    """The progress of an update; empty when there is none."""
    if update is None:
        return ""
    back = f", going back from {update['falls_back_from']}" if update.get("falls_back_from") else ""
    held = ", paused" if update["paused"] else ""
    waits = f", waits for {update['waiting_for']}" if update["waiting_for"] else ""
    old = f"{update['old']} old ones left"
    ends = f"; {words}" if (words := giving_up(update)) else ""
    return f"{update['available']} of {update['new']} new routes available, {old}{back}{held}{waits}{ends}"


def giving_up(update: Row) -> str:
    """``2 starts failed; gives up at 14:02:11 without progress, or after 3 more``; empty when
    neither is known.
    """
    failed, allowed, at = (
        update.get(name) for name in ("failed_starts", "failed_starts_allowed", "gives_up_at")
    )
    tried = f"{counted(failed, 'start')} failed" if failed else ""
    more = (
        f", or after {counted(max(0, allowed - (failed or 0)), 'more failed start')}"
        if allowed
        else ""
    )
    ends = f"gives up at {show_moment(at)} without progress{more}" if at else ""
    return "; ".join(part for part in (tried, ends) if part)


def scaling_rule(found: Row) -> str:
    """``1 to 6 routes, 5 outstanding each; 12.3 now``; empty without a rule."""
    said = found["spec"].get("scaling")
    if said is None:
        return ""
    policy = from_builtins(said, ScalingPolicy)
    load = (found.get("scaling") or {}).get("load")
    now = f"; {load:.3g} now" if load is not None else ""
    unit = f"of {policy.query}" if policy.query else "outstanding"
    return f"{policy.minimum} to {counted(policy.maximum, 'route')}, {policy.target:g} {unit} each{now}"


def scaling_lines(found: Row) -> Iterator[str]:
    """What holds the number of routes, and its last change by the rule."""
    known = found.get("scaling") or {}
    if known.get("held") and all(
        one["code"] != "load_unknown" for one in found["conditions"]
    ):  # which says it too
        yield f"  the number of routes stays: {known['held']}"
    if known.get("last"):
        yield f"  {known['last']}  ({age(known['last_at'])} ago)"


def condition_lines(found: Row) -> Iterator[str]:
    for one in found["conditions"]:
        yield f"  {one['message']}  ({one['code']})"


def why_lines(found: Row) -> Iterator[str]:
    """Why a deployment has its status, as lines."""
    serve = f"{found['ready']} of {found['replicas']} serve"
    yield f"{found['deployment']} is {state_word(found['status'])}, {serve}, revision {found['revision']}"
    if found.get("update"):
        yield f"  update: {standing(found['update'])}"
    yield from scaling_lines(found)
    yield from condition_lines(found)
    for route in found["routes"]:
        why = why_not(route)
        yield f"  {route['id']} is {state_word(route['status'])} for {age(route['since'])}{f': {why}' if why else ''}"
    for row in found["history"][-_DECISIONS_SHOWN:]:
        times = f" x {row['attempts']}" if row["attempts"] > 1 else ""
        why = f": {row['reason']}" if row["reason"] else ""
        yield f"  {row['entity']} {row['handler']} {row['result'].lower()}{times} {age(row['last_at'])} ago{why}"
