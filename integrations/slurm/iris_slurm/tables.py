"""Prints rows as `squeue`, `sacct` and `sshare` do: in columns, or with a sign between fields.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iris.cli.output.terminal import in_one_line
from iris_slurm.records import FIELDS, SlurmRow
from iris_slurm.values import NotHonoured


@dataclass(frozen=True)
class FieldColumn:
    """``field``: of those of the command. ``width``: 0: as wide as the text. ``left``: where texts
    begin.
    """

    field: str
    title: str
    width: int = 0
    left: bool = False

    def cell(self, text: str) -> str:
        """Cut or filled to the width."""
        if not self.width:
            return text
        return (
            text[: self.width].ljust(self.width)
            if self.left
            else text[: self.width].rjust(self.width)
        )


LETTERS = {
    "i": ("jobid", "JOBID"),
    "A": ("jobidraw", "JOBID"),
    "F": ("arrayjobid", "ARRAY_JOB_ID"),
    "K": ("arraytaskid", "ARRAY_TASK_ID"),
    "j": ("jobname", "NAME"),
    "u": ("user", "USER"),
    "a": ("account", "ACCOUNT"),
    "k": ("comment", "COMMENT"),
    "P": ("partition", "PARTITION"),
    "q": ("qos", "QOS"),
    "T": ("state", "STATE"),
    "t": ("statecompact", "ST"),
    "M": ("elapsed", "TIME"),
    "l": ("timelimit", "TIME_LIMIT"),
    "D": ("nnodes", "NODES"),
    "C": ("ncpus", "CPUS"),
    "N": ("nodelist", "NODELIST"),
    "R": ("where", "NODELIST(REASON)"),
    "r": ("reason", "REASON"),
    "m": ("reqmem", "MIN_MEMORY"),
    "V": ("submit", "SUBMIT_TIME"),
    "S": ("start", "START_TIME"),
    "e": ("end", "END_TIME"),
}
"""Of the format of `squeue`."""
BAR = "\\x7c"
"""In place of a | in a field, which would end it."""
_LETTER = re.compile(r"%(?P<right>\.?)(?P<width>\d*)(?P<letter>\w)")


def format_rows(format_: str, rows: Iterable[SlurmRow], *, header: bool) -> list[str]:
    """The lines of `squeue` with a format such as ``%.18i %t``. Raises NotHonoured."""
    for match in _LETTER.finditer(format_):
        if match["letter"] not in LETTERS:
            raise NotHonoured(
                f"--format={format_}: %{match['letter']} is not known; use %{' %'.join(LETTERS)}"
            )

    def line(row: SlurmRow | None) -> str:
        def cell(match: re.Match[str]) -> str:
            field, title = LETTERS[match["letter"]]
            return FieldColumn(field, title, int(match["width"] or 0), not match["right"]).cell(
                text_of(field, title, row)
            )

        return _LETTER.sub(cell, format_)

    return [*([line(None)] if header else []), *map(line, rows)]


def text_of(field: str, title: str, row: SlurmRow | None) -> str:
    """A cell; without a row the title."""
    if row is None:
        return title
    if field == "where":
        return f"({row.reason})" if row.state == "PENDING" else fact("nodelist", row)
    return fact(field, row)


SlurmFields = Mapping[str, Callable[[Any], str]]
"""What a command shows of a row, by the names of its format in lower case."""


def fact(field: str, row: Any, fields: SlurmFields = FIELDS) -> str:
    """A field as part of a line: what a person has named cannot end it."""
    return in_one_line(fields[field](row))


_TITLES = {
    "jobid": "JobID",
    "jobidraw": "JobIDRaw",
    "jobname": "JobName",
    "exitcode": "ExitCode",
    "maxrss": "MaxRSS",
}
_TITLES |= {
    "nodelist": "NodeList",
    "alloccpus": "AllocCPUS",
    "ncpus": "NCPUS",
    "nnodes": "NNodes",
    "reqmem": "ReqMem",
}
_TITLES |= {"reqcpus": "ReqCPUS", "qos": "QOS"}
_TITLES |= {
    "rawshares": "RawShares",
    "normshares": "NormShares",
    "rawusage": "RawUsage",
    "effectvusage": "EffectvUsage",
    "fairshare": "FairShare",
    "levelfs": "LevelFS",
}


def columns_of(format_: str, fields: SlurmFields = FIELDS) -> list[FieldColumn]:
    """Those of `sacct` or `sshare` with a format such as ``JobID,State%20``. Raises NotHonoured."""
    found = []
    for word in format_.split(","):
        name, _, width = word.strip().partition("%")
        field = name.lower()
        if field not in fields or not (width or "0").lstrip("-").isdigit():
            raise NotHonoured(
                f"--format={format_}: {word} is not known; use {', '.join(sorted(fields))}"
            )
        title = _TITLES.get(field, field.capitalize())
        found.append(FieldColumn(field, title, abs(int(width or 12)), width.startswith("-")))
    return found


def table(
    columns: Sequence[FieldColumn],
    rows: Iterable[Any],
    *,
    header: bool,
    fields: SlurmFields = FIELDS,
) -> list[str]:
    """The lines of `sacct` or `sshare`."""
    titles = [" ".join(column.cell(column.title) for column in columns)] if header else []
    lines = [" ".join("-" * column.width for column in columns)] if header else []
    cells = (
        " ".join(column.cell(fact(column.field, row, fields)) for column in columns) for row in rows
    )
    return [*titles, *lines, *cells]


def parsable(
    columns: Sequence[FieldColumn],
    rows: Iterable[Any],
    *,
    header: bool,
    end: str,
    fields: SlurmFields = FIELDS,
) -> list[str]:
    """The lines of either with a | between fields; ``end``: behind the last one."""
    titles = ["|".join(column.title for column in columns) + end] if header else []
    return [
        *titles,
        *(
            "|".join(fact(column.field, row, fields).replace("|", BAR) for column in columns) + end
            for row in rows
        ),
    ]
