"""The file in which a task may leave what its failure is about."""

from __future__ import annotations

import os

ERROR_FILE = ".iris-error"
_ERROR_LIMIT = 2000


def read_error_file(workdir: str) -> str:
    """The text a task wrote into its IRIS_ERROR_FILE, as one line; empty when there is none. Never
    raises.
    """
    try:
        fd = os.open(f"{workdir}/{ERROR_FILE}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        if os.fstat(fd).st_uid != os.stat(workdir).st_uid:
            return ""  # a link to what the task may not read
        return " ".join(os.read(fd, _ERROR_LIMIT).decode(errors="replace").split())
    except OSError:
        return ""
    finally:
        os.close(fd)
