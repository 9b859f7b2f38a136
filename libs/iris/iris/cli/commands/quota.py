"""`iris quota`: what each user may take."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from iris.cli.options import connected, form_option
from iris.cli.tables import Row, print_facts, print_object
from iris.cli.times import show_bytes, show_cores
from iris.client.client import Client, decode
from iris.client.transport import Request, in_path
from iris.client.units import parse_cpu, parse_size

LIMITS = (
    "max_running_cpu",
    "max_running_memory",
    "max_running_accelerators",
    "max_pending_tasks",
    "max_band",
)


@click.group()
def quota() -> None:
    """Show and set what users may take; 0 is unlimited."""


@quota.command()
@click.argument("user")
@form_option()
@connected
def show(client: Client, user: str, form: str) -> None:
    """Show a user's limits and what is used of them."""
    found: Row = client.get(f"/v1/quotas/{in_path(user)}", dict)
    if not print_object(found, form, name="user"):
        print_facts([*describe(found), *everybodys(client.get("/v1/meta", dict)["limits"])])


def describe(found: Row) -> list[tuple[str, str]]:
    """Each limit as ``used of limit``."""
    return [
        ("user", found["user"]),
        ("running cpu", of(found["running_cpu"], found["max_running_cpu"], show_cores)),
        ("running memory", of(found["running_memory"], found["max_running_memory"], show_bytes)),
        ("running accelerators", of(found["running_accelerators"], found["max_running_accelerators"], str)),
        ("pending tasks", of(found["pending_tasks"], found["max_pending_tasks"], str)),
        ("best band", str(found["max_band"])),
    ]


def everybodys(limits: Row) -> list[tuple[str, str]]:
    """What the gateway lets each user do; 0 is unlimited."""
    words = {
        "requests a second": str(limits["requests_per_s"] or "unlimited"),
        "bytes sent a second": show_bytes(limits["intake_per_s"]) if limits["intake_per_s"] else "unlimited",
        "open streams": f"at most {limits['watchers_per_user']}",
        "uploads at once": f"at most {limits['uploads_per_user']}",
    }
    return list(words.items())


def of(used: int, limit: int, show_amount: Any) -> str:
    """``3 of 8``, or ``3 of unlimited``."""
    return f"{show_amount(used)} of {show_amount(limit) if limit else 'unlimited'}"


@quota.command("set")
@click.argument("user")
@click.option("--max-running-cpu", help="Cores.", metavar="N")
@click.option("--max-running-memory", help="For example 64GiB.", metavar="SIZE")
@click.option("--max-running-accelerators", type=click.IntRange(0), help="Chips.")
@click.option("--max-pending-tasks", type=click.IntRange(0), help="Tasks.")
@click.option("--max-band", type=click.Choice(["production", "interactive", "batch"]), help="Best band.")
@connected
def set_quota(client: Client, user: str, **given: Any) -> None:
    """Set some of a user's limits; the others stay. 0 is unlimited."""
    limits = {key: value for key, value in given.items() if value is not None}
    if not limits:
        raise click.UsageError("say at least one limit")
    if "max_running_cpu" in limits:
        limits["max_running_cpu"] = parse_cpu(limits["max_running_cpu"])
    if "max_running_memory" in limits:
        limits["max_running_memory"] = parse_size(limits["max_running_memory"])
    path = f"/v1/quotas/{in_path(user)}"
    present: Row = client.get(path, dict)
    wanted = {key: limits.get(key, present[key]) for key in LIMITS}
    headers = {"Content-Type": "application/json"}
    answer = client.transport.send(Request("PUT", path, body=msgspec.json.encode(wanted), headers=headers))
    for name, value in describe(decode(answer, dict)):
        click.echo(f"{name}: {value}", err=True)
