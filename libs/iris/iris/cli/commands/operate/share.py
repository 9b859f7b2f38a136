"""`iris share`: what projects and users have had of late over what is just."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from iris.cli.commands.operate.project import PATH
from iris.cli.output.pages import ListedPage, print_page, read_page_as
from iris.cli.output.tables import Column, Row
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.flags import limit_options
from iris.cli.parsing.options import connected, form_option
from iris.client.client import Client
from iris_core.views.usage import show_hours

NO_FAIR_SHARE = (
    "there is no fair share: it begins with the second project that has a weight "
    "(iris project set PATH --weight N), or as [state] fair_share says"
)


class ListedShares(ListedPage, frozen=True, kw_only=True):
    """Rows of shares. ``enabled``: there is fair share."""

    enabled: bool


def _part(field: str) -> Callable[[Row], str]:
    """Shows a part of 1: ``25.0%``."""
    return lambda row: f"{row[field]:.1%}"


COLUMNS: Sequence[Column] = (
    Column("PROJECT", lambda row: row["project"]),
    Column("USER", lambda row: row["user"] or ""),
    Column("WEIGHT", lambda row: f"{row['weight']:g}", right=True, gives=4),
    Column("OF WEIGHTS", _part("weight_part"), right=True, gives=5),
    Column("USED HOURS", lambda row: show_hours(row["usage"]), right=True, gives=3),
    Column("OF USE", _part("usage_part"), right=True, gives=6),
    Column("SHARE", lambda row: f"{row['share']:.3g}", right=True),
    Column("STEP", lambda row: str(row["step"]), right=True),
    Column("RUNNING", _part("running"), right=True, gives=2),
    Column("PENDING", lambda row: f"{row['pending_tasks']:,}", right=True, gives=1),
)


@click.command(cls=CliCommand)
@click.argument("path", type=PATH, metavar="[PATH]", required=False)
@limit_options(100)
@form_option()
@connected
def share(client: Client, path: str | None, limit: int, cursor: str | None, form: str) -> None:
    """Show what projects and their users have had of late over what is just; with PATH of that
    project and those below it.

    Below each project are its users, and then the projects below it; of users admins see all, others
    themselves. SHARE is OF USE over OF WEIGHTS, the part of what was used and of the weights among the
    siblings with work: the projects, and users, right below the same project. 1 is just. STEP is the
    whole part of its log2: in a band and depth the lower one goes first, level by level from the root.
    USED HOURS are hours of the whole cluster, of which those of a week ago count half; RUNNING is the
    part of the cluster that is held now.
    """
    page = read_page_as(ListedShares, client, "/v1/share", {"project": path}, limit, cursor=cursor)
    print_page(page, COLUMNS, form, name="project")
    if not page.enabled:
        click.echo(NO_FAIR_SHARE, err=True)
