"""What the commands share: the client, and how mistakes are told."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Sequence

from iris import Client, ClientError
from iris.cli.output.terminal import guarded
from iris_core.errors import IrisError
from iris_slurm.directives import Parser, help_of
from iris_slurm.values import NotHonoured

SLURM_VERSION = "24.05.0"
"""The release of Slurm whose options the tables name; programs ask for it."""
CLUSTER = "iris"
"""The name of the cluster, in ``SLURM_CLUSTER_NAME`` too."""


def add_clusters(reader: Parser) -> None:
    """The option that names clusters, of which there is one."""
    reader.add_argument("-M", "--clusters", "--cluster", default="")


def check_clusters(text: str) -> None:
    """Raises NotHonoured."""
    if others := {*filter(None, text.split(","))} - {"all", CLUSTER}:
        raise NotHonoured(
            f"--clusters={text}: {min(others)} is not known; it is {CLUSTER} or all, and a context of "
            "Iris names another cluster: set IRIS_CONTEXT"
        )


def run(
    program: str, command: Callable[[Client, list[str]], int], words: Sequence[str] | None = None
) -> int:
    """The exit code of a command; its mistakes are lines on standard error."""
    given = list(sys.argv[1:] if words is None else words)
    if given == ["--help"]:
        print(help_of(program))
        return 0
    if given in (["-V"], ["--version"]):
        print(f"slurm-iris {SLURM_VERSION}")
        return 0
    with guarded():
        return _run(program, command, given)


def _run(program: str, command: Callable[[Client, list[str]], int], given: list[str]) -> int:
    try:
        with Client() as client:
            return command(client, given)
    except (NotHonoured, IrisError) as error:
        for line in str(error).splitlines():
            print(f"{program}: error: {line}", file=sys.stderr)
        mistakes = getattr(error, "mistakes", ()) if isinstance(error, ClientError) else ()
        for mistake in mistakes:
            print(f"{program}: error: {mistake.pointer}: {mistake.message}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def user() -> str:
    """The owner of this person's jobs; a token may say another one."""
    return os.environ.get("SLURM_JOB_USER") or getpass.getuser()
