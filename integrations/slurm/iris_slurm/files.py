"""The names of files of output: ``slurm-%A_%a.out``. Pure; raises `NotHonoured`."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
