"""`sshare`: what projects and their users have had of late over what is just."""

from __future__ import annotations

import sys

from iris import Client
from iris.cli.commands.operate.share import NO_FAIR_SHARE
from iris_core.views.projects import ShareView
from iris_slurm.commands.program import add_clusters, check_clusters, run
from iris_slurm.commands.sacctmgr import ANY_ACCOUNT
from iris_slurm.directives import Parser
from iris_slurm.tables import SlurmFields, columns_of, fact, parsable, table

FIELDS: SlurmFields = {
    "account": lambda row: row.project,
    "user": lambda row: row.user or "",
    "rawshares": lambda row: f"{row.weight:g}",
    "normshares": lambda row: f"{row.weight_part:.6f}",
    "rawusage": lambda row: f"{row.usage:.0f}",
    "effectvusage": lambda row: f"{row.usage_part:.6f}",
    "fairshare": lambda row: f"{2**-row.share:.6f}",
    "levelfs": lambda row: f"{1 / row.share:.6f}" if row.share else "inf",
}
"""Of a `ShareView`. FairShare and LevelFS are by the formulas of Slurm, whose quotient EffectvUsage
over NormShares is the share.
"""
_NAMES = {"account", "user"}


def main() -> int:
    """The command."""
    return run("sshare", sshare)


def sshare(client: Client, words: list[str]) -> int:
    """Raises NotHonoured, ClientError."""
    reader = Parser("sshare")
    for flags in ("-n --noheader", "-P --parsable2", "-p --parsable", "-U --Users"):
        reader.add_argument(*flags.split(), action="store_true")
    reader.add_argument("-a", "--all", action="store_true")  # in any case, all that may be read
    for flags in ("-o --format", "-u --users", "-A --accounts"):
        reader.add_argument(*flags.split(), default="")
    add_clusters(reader)
    given = reader.parse_args(words)
    check_clusters(given.clusters)
    asked = columns_of(given.format, FIELDS) if given.format else []
    if asked and {column.field for column in asked} <= _NAMES:
        # Programs ask so which accounts they may name, and take none that is not in the list.
        print(f"sshare: {ANY_ACCOUNT}", file=sys.stderr)
        return 0
    rows = shares_of(client, [*filter(None, given.accounts.split(","))])
    if not rows:
        print(f"sshare: {NO_FAIR_SHARE}", file=sys.stderr)
        return 0
    users = {*filter(None, given.users.split(","))}
    if unknown := sorted(users - {row.user for row in rows}):
        print(
            f"sshare: warning: no share of {', '.join(unknown)}: no work of late, or hidden from you",
            file=sys.stderr,
        )
    shown = [
        row
        for row in rows
        if (not given.Users if row.user is None else not users or row.user in users)
    ]
    columns = asked or columns_of(_default(shown), FIELDS)
    header = not given.noheader
    if given.parsable or given.parsable2:
        end = "|" if given.parsable else ""
        lines = parsable(columns, shown, header=header, end=end, fields=FIELDS)
    else:
        lines = table(columns, shown, header=header, fields=FIELDS)
    for line in lines:
        print(line)
    return 0


def shares_of(client: Client, accounts: list[str]) -> list[ShareView]:
    """Each once, of these projects and those below them, or of all; none while there is no fair
    share.
    """
    chosen: list[str | None] = [*accounts] or [None]
    found = (row for account in chosen for row in client.shares(project=account))
    return list({(row.project, row.user): row for row in found}.values())


def _default(rows: list[ShareView]) -> str:
    """The format of Slurm, with room for each name."""
    account = max([20, *(len(fact("account", row, FIELDS)) for row in rows)])
    user = max([10, *(len(fact("user", row, FIELDS)) for row in rows)])
    return (
        f"Account%-{account},User%{user},RawShares%10,NormShares%11,RawUsage%11,"
        "EffectvUsage%13,FairShare%10"
    )
