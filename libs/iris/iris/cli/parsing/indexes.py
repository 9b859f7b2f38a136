"""Names of several tasks of a job: ``sweep/0-2,7``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iris.cli.errors import explain
from iris.cli.exit_codes import ExitCode
from iris.client.client import Client
from iris.client.problems import InvalidOption, NotFound, Problem
from iris_core.spec.index_set import IndexSet

_OF_INDEXES = frozenset("0123456789-,:")


def for_each(client: Client, names: Sequence[str], do: Callable[[str], None]) -> int:
    """Do something with each job and task that is named; returns the exit code.

    Of several all are tried, and each failure is printed; the first one gives the code. Raises what
    a single one raises.
    """
    if len(names) == 1:
        try:
            do(names[0])
        except NotFound:
            tasks = tasks_of(client, names[0])
            if not tasks:
                raise
            return for_each(client, tasks, do) if len(tasks) > 1 else _try(client, tasks[0], do)
        return ExitCode.SUCCEEDED
    codes = [_try(client, name, do) for name in names]
    return next((code for code in codes if code), ExitCode.SUCCEEDED)


def _try(client: Client, name: str, do: Callable[[str], None]) -> int:
    """As `for_each` of one, with its failure printed."""
    try:
        return for_each(client, [name], do)
    except Problem as error:
        return explain(error) or ExitCode.UNEXPECTED


def tasks_of(client: Client, name: str) -> list[str]:
    """The tasks that ``sweep/0-2,7`` names; none for another name. Raises InvalidOption, and
    NotFound when there is no such job.
    """
    job, _, indexes = name.rpartition("/")
    if (
        not job.strip("/")
        or not indexes
        or not _OF_INDEXES.issuperset(indexes)
        or indexes.isdigit()
    ):
        return []
    found = client.job(job)
    try:
        return [f"{found.name}/{index}" for index in IndexSet.parse(indexes)]
    except ValueError as error:
        raise InvalidOption(f"{name}: {error}") from None
