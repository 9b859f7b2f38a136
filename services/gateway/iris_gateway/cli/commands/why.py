"""`iris why`: why something waits, or how it came to its end."""

from __future__ import annotations

import click

from iris_gateway.cli.options import NAME, connected, form_option
from iris_gateway.cli.tables import Row, print_json, state_word
from iris_gateway.client.client import Client, is_task
from iris_gateway.client.transport import in_path


@click.command()
@click.argument("name", type=NAME, metavar="JOB|TASK")
@form_option(forms=("table", "json"))
@connected
def why(client: Client, name: str, form: str) -> None:
    """Say why JOB or TASK waits, in words and numbers, or how it came to its end."""
    kind = "tasks" if is_task(name) else "jobs"
    found: Row = client.get(f"/v1/{kind}/{in_path(name)}/why", dict)
    if form == "json":
        print_json(found)
        return
    for line in tell(found):
        click.echo(line)


def tell(found: Row) -> list[str]:
    """The answer as sentences; members that are not there are passed over."""
    name = found.get("task") or found.get("job") or found.get("name") or ""
    lines = [f"{name} is {state_word(found['state'])}"] if found.get("state") else []
    reason = found.get("pending_reason") or found.get("reason")
    if isinstance(reason, dict):
        lines.append(f"  {reason['message']}  ({reason['code']})")
        lines += [f"    {fact}: {show_fact(value)}" for fact, value in (reason.get("facts") or {}).items()]
    elif reason:
        lines.append(f"  {reason}")
    lines += [f"  {words}" for words in (found.get("error"), found.get("detail")) if words]
    for part in found.get("tasks") or ():
        lines += [f"  {line}" for line in tell(part)]
    return lines


def show_fact(value: object) -> str:
    """A number or word, or a small table on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {count}" for key, count in value.items())
    return str(value)
