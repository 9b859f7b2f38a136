"""The names of files of output: ``slurm-%A_%a.out``, and their directories. Pure but for
`prepare_directory`; raises `NotHonoured`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import takewhile
from pathlib import Path

from iris_slurm.values import NotHonoured

_LETTER = re.compile(r"%(\d*)(.?)")
_NO_VALUE = "4294967294"
"""What Slurm has in place of the index of an array that is none."""
_VARIABLES = {
    "A": "SLURM_ARRAY_JOB_ID",
    "a": "SLURM_ARRAY_TASK_ID",
    "j": "SLURM_JOB_ID",
    "J": "SLURM_JOB_ID",
    "N": "SLURMD_NODENAME",
    "n": "SLURM_NODEID",
    "t": "SLURM_PROCID",
    "u": "SLURM_JOB_USER",
    "x": "SLURM_JOB_NAME",
}


def check_pattern(option: str, pattern: str) -> None:
    """Refuse letters that have no meaning here."""
    for match in _LETTER.finditer(pattern):
        if match[2] not in (*_VARIABLES, "%"):
            raise NotHonoured(
                f"{option}={pattern}: %{match[2]} is not known; use %{' %'.join(_VARIABLES)}"
            )


def expand(pattern: str, environ: Mapping[str, str]) -> str:
    """The name of the file of a task with these variables."""
    fallback = {"A": environ["SLURM_JOB_ID"], "a": _NO_VALUE}

    def value(match: re.Match[str]) -> str:
        if match[2] == "%":
            return "%"
        found = environ.get(_VARIABLES[match[2]], fallback.get(match[2], ""))
        return found.zfill(min(int(match[1] or 0), 10))

    return _LETTER.sub(value, pattern)


def prepare_directory(
    pattern: str, environ: Mapping[str, str], pauses: int, pause: Callable[[], None]
) -> Path | None:
    """Wait for the directory of a file; then make it if its name has letters, such as ``logs/%j``.

    Who submits a job makes such a directory once its number is known, when the task may run
    already. One with a plain name could be made before: if it is missing, the host has not the
    file system that is meant. Returns the directory if it was made. Raises OSError.
    """
    name = Path(pattern).parent
    directory = Path(expand(str(name), environ))
    for _ in range(pauses):
        if directory.is_dir():
            return None
        pause()
    plain = Path(*takewhile(lambda part: "%" not in part, name.parts))
    if directory.is_dir() or plain == name or not plain.is_dir():
        return None
    directory.mkdir(parents=True, exist_ok=True)
    return directory
