"""`sshare`: there are no shares of accounts, and programs that ask are told so."""

from __future__ import annotations

import sys

from iris import Client
from iris_slurm.commands.program import run
from iris_slurm.commands.sacctmgr import ANY_ACCOUNT
from iris_slurm.directives import Parser


def main() -> int:
    """The command."""
    return run("sshare", sshare)


def sshare(client: Client, words: list[str]) -> int:
    """Raises NotHonoured."""
    reader = Parser("sshare")
    for flags in ("-n --noheader", "-P --parsable2", "-p --parsable", "-U --Users", "-a --all"):
        reader.add_argument(*flags.split(), action="store_true")
    for flags in ("-o --format", "-u --users", "-A --accounts"):
        reader.add_argument(*flags.split())
    reader.parse_args(words)
    print(f"sshare: {ANY_ACCOUNT}", file=sys.stderr)
    return 0
