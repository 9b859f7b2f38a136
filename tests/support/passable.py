"""Directories that other users may pass. Those of pytest are not: each run of pytest that begins closes
the one above all of them again, also while another test has opened it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def passable_directory() -> Iterator[Path]:
    """A new directory beside those of pytest, which goes at the end of the block."""
    with TemporaryDirectory(prefix="iris-test-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o755)
        yield place
