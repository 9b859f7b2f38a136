"""`sacctmgr`: what there is of accounts, for programs that ask before they submit."""

from __future__ import annotations

import sys

from iris import Client
from iris_slurm.commands.program import CLUSTER, run
from iris_slurm.directives import Parser
from iris_slurm.translate import BANDS
from iris_slurm.values import NotHonoured

ANY_ACCOUNT = (
    "there is no list of accounts: a path such as /research/nlp is that project, and any other name "
    "is taken as a label"
)
_ASSOCIATIONS = {"user", "users", "account", "accounts", "association", "associations", "assoc"}


def main() -> int:
    """The command."""
    return run("sacctmgr", sacctmgr)


def sacctmgr(client: Client, words: list[str]) -> int:
    """Raises NotHonoured."""
    reader = Parser("sacctmgr")
    for flags in ("-n --noheader", "-P --parsable2", "-p --parsable", "-s --associations"):
        reader.add_argument(*flags.split(), action="store_true")
    reader.add_argument("-i", "--immediate", action="store_true")
    reader.add_argument("words", nargs="*")
    given = reader.parse_intermixed_args(words)
    match [word.lower() for word in given.words]:
        case ["show" | "list", kind, *_] if kind in _ASSOCIATIONS:
            print(f"sacctmgr: {ANY_ACCOUNT}", file=sys.stderr)
            return 0
        case ["show" | "list", "qos", *rest]:
            title, names = "Name", sorted(BANDS)
        case ["show" | "list", "cluster" | "clusters", *rest]:
            title, names = "Cluster", [CLUSTER]
        case _:
            raise NotHonoured(
                f"{' '.join(given.words) or 'no command'}: use show of user, account, association, qos or cluster"
            )
    if spare := [word for word in rest if word not in ("format=name", "format=cluster")]:
        raise NotHonoured(f"{spare[0]}: only format={title.lower()}, of all")
    end = "|" if given.parsable else ""
    for line in (*(() if given.noheader else (title,)), *names):
        print(f"{line}{end}")
    return 0
