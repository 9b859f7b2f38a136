"""What ``--mail-type`` and ``--mail-user`` become: a rule of a job that names a target of the user's.

No target is made here: mails go to addresses that their user has added, and that a test message has
reached.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from iris import Client
from iris.client.problems import ClientError
from iris_core.spec.option_table import JobOptions
from iris_slurm.values import NotHonoured

TARGET = "mail"
"""The name of the target without ``--mail-user``."""
_WORDS = {
    "BEGIN": ("started",),
    "END": ("ended",),
    "FAIL": ("failed",),
    "ALL": ("started", "ended", "failed"),
    "TIME_LIMIT_50": ("time_50",),
    "TIME_LIMIT_80": ("time_80",),
    "TIME_LIMIT_90": ("time_90",),
    "NONE": (),
}
_UNSENT = ("REQUEUE", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT", "ARRAY_TASKS")


def add_rules(program: str, client: Client, given: argparse.Namespace, options: JobOptions) -> None:
    """Add the rules that the options of a job ask for. Raises NotHonoured."""

    def warn(text: str) -> None:
        if not given.quiet:
            print(f"{program}: warning: {text}", file=sys.stderr)

    words = mail_words(given.mail_type or "", has_limit="timeout" in options, warn=warn)
    if rules := notify_rules(client, given.mail_user, words, warn):
        options["notify"] = rules


def mail_words(types: str, *, has_limit: bool, warn: Callable[[str], object]) -> list[str]:
    """The words of a rule, of ``END,FAIL``. Raises NotHonoured for a type that Slurm has not.

    ``has_limit``: whether the job has a time limit, of which a part may be used.
    """
    words: dict[str, None] = {}
    for kind in filter(None, types.upper().split(",")):
        if kind in _UNSENT:
            warn(f"--mail-type={kind} has no effect: nothing is sent of that")
        elif kind not in _WORDS:
            raise NotHonoured(f"--mail-type={types}: there is no type {kind}")
        elif kind.startswith("TIME_") and not has_limit:
            warn(f"--mail-type={kind} has no effect: the job has no --time")
        else:
            words |= dict.fromkeys(_WORDS[kind])
    return list(words)


def notify_rules(
    client: Client, user: str | None, words: list[str], warn: Callable[[str], object]
) -> list[str]:
    """The rules of a job; none where no target is meant, which is a warning: the job runs all the
    same.
    """
    if not words:
        return []
    wanted = user or TARGET
    try:
        targets = [one for one in client.notify_targets() if wanted in (one.name, one.smtp)]
    except ClientError as error:
        warn(f"--mail-type has no effect: {error}")
        return []
    if not targets:
        option = f"--smtp {wanted}" if "@" in wanted else "--smtp ADDRESS"
        name = TARGET if "@" in wanted else wanted
        warn(
            f"--mail-type has no effect: you have no target {wanted}; add it once: "
            f"iris notify target add {name} {option}"
        )
        return []
    return [f"{targets[0].name}:{','.join(words)}"]
