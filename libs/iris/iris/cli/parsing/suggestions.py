"""Suggests the command or job that was probably meant: words of other tools first, then similar
letters.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SYNONYMS = {
    "abort": ("cancel",),
    "apply": ("run", "create"),
    "delete": ("cancel",),
    "describe": ("show",),
    "get": ("ls", "show"),
    "help": ("--help",),
    "info": ("show",),
    "jobs": ("ls",),
    "kill": ("cancel",),
    "list": ("ls",),
    "log": ("logs",),
    "nodes": ("worker ls",),
    "ps": ("ls",),
    "remove": ("cancel",),
    "rm": ("cancel",),
    "sacct": ("ls", "show"),
    "salloc": ("run",),
    "sbatch": ("run -d",),
    "scancel": ("cancel",),
    "sinfo": ("worker ls",),
    "squeue": ("ls", "queue"),
    "srun": ("run",),
    "sshare": ("share",),
    "ssh": ("exec",),
    "start": ("run", "up"),
    "status": ("ls", "show"),
    "stop": ("cancel", "down"),
    "submit": ("run",),
    "tail": ("logs -f",),
    "watch": ("top", "events"),
}
"""Words of Slurm, Kubernetes, Docker and Ray, and what they are called here."""
ALIASES = {
    "ls": ("list",),
    "rm": ("delete", "forget", "remove", "revoke"),
    "list": ("ls",),
    "delete": ("rm",),
}
"""Words that every group takes, and the command of it that each runs: the first that it has."""
_NEAREST = 3
_CUTOFF = 0.5


def alias(word: str, commands: Iterable[str]) -> str:
    """The command of a group that ``word`` runs; ``word`` itself when it is not an alias of one."""
    there = set(commands)
    return (
        word
        if word in there
        else next((one for one in ALIASES.get(word, ()) if one in there), word)
    )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` Did you mean 'cancel'?``; empty when nothing is near."""
    names = list(known)
    meant = [one for one in SYNONYMS.get(word.lower(), ()) if one.split()[0] in {*names, "--help"}]
    meant = meant or difflib.get_close_matches(word, names, n=_NEAREST, cutoff=_CUTOFF)
    return f" Did you mean {' or '.join(map(repr, meant))}?" if meant else ""


def nearest_name(name: str, known: Iterable[str]) -> str:
    """The most similar name of a job; empty when none is similar."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return near[0] if near else ""
