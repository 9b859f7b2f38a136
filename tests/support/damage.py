"""Corrupts stored data: flips bytes, truncates files, deletes files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from iris_core import subjects
from iris_nats.blocks import Record, journal, records
from tests.support import warm
from tests.support.cluster import Ended

Hurt = Callable[[Path], None]
"""Does harm to the store of a server on this directory."""


def files_of(directory: Path, stream: str = subjects.JOURNAL.name) -> list[Path]:
    return sorted((directory / "store" / "jetstream").glob(f"*/streams/{stream}/msgs/*.blk"))


def journal_in(directory: Path) -> dict[int, Record]:
    """Every message of the journal in the files of a server, whichever account they are of."""
    return journal(path.read_bytes() for path in files_of(directory)).records


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x10]))
        os.fsync(file.fileno())


def place_of(directory: Path, sequence: int) -> tuple[Path, int]:
    """The file and the place in it where the body of a message of the journal begins."""
    for path in files_of(directory):
        block = path.read_bytes()
        for record in records(block):
            if record.sequence == sequence:
                return path, block.index(record.data)
    raise LookupError(sequence)


def middle(directory: Path) -> int:
    """A sequence half-way through the journal."""
    found = list(journal_in(directory))
    return found[len(found) // 2]


def flip_middle(directory: Path) -> None:
    path, at = place_of(directory, middle(directory))
    flip(path, at + 20)


def flip_before(directory: Path, sequence: int) -> None:
    """In the message that stands right before one of the journal."""
    path, at = place_of(directory, sequence - 1)
    flip(path, at + 20)


def flip_value(directory: Path, bucket: str, at: int = -20) -> None:
    """In the record of a key-value bucket that holds one value; ``at``: from its end when
    negative.
    """
    [path] = files_of(directory, f"KV_{bucket}")
    flip(path, at % path.stat().st_size)


def flip_first(directory: Path) -> None:
    """In the length of the first record."""
    flip(files_of(directory)[0], 0)


def flip_last(directory: Path) -> None:
    path, at = place_of(directory, max(journal_in(directory)))
    flip(path, at + 20)


def truncate(directory: Path) -> None:
    path, at = place_of(directory, middle(directory))
    os.truncate(path, at + 5)


def remove(directory: Path) -> None:
    for path in files_of(directory):
        path.unlink()


def index_of(directory: Path) -> Path:
    return files_of(directory)[0].with_name("index.db")


def flip_index(directory: Path) -> None:
    path = index_of(directory)
    flip(path, path.stat().st_size // 2)


def remove_index(directory: Path) -> None:
    index_of(directory).unlink()


def flip_after_crash(directory: Path) -> None:
    """A server that was killed has left no index; starting, it cuts the file off behind what it
    cannot read.
    """
    flip_middle(directory)
    remove_index(directory)


def snapshots_in(directory: Path) -> list[tuple[Path, int]]:
    """Where in which file each snapshot begins, oldest first."""
    found = []
    for path in files_of(directory, f"OBJ_{subjects.SNAPSHOTS_BUCKET}"):
        block, at = path.read_bytes(), -1
        while (at := block.find(b"IRISSNAP", at + 1)) >= 0:
            found.append((path, at))
    return found


def flip_snapshots(directory: Path) -> None:
    """In all of them."""
    for path, at in snapshots_in(directory):
        flip(path, at + 60)


def flip_newest_snapshot(directory: Path) -> None:
    path, at = snapshots_in(directory)[-1]
    flip(path, at + 60)


def admin(
    *words: object, store: Path | None = None, url: str = "", cwd: Path | None = None
) -> Ended:
    """Run the program that `iris admin` starts."""
    where = ["--store", str(store)] if store is not None else []
    environ = {**os.environ, "IRIS_NATS_URL": url} if url else os.environ
    done = warm.run("iris_state.admin", [*where, *map(str, words)], environ, timeout=60, cwd=cwd)
    return Ended(done.returncode, done.stdout, done.stderr)


def lost_by(words: str) -> set[str]:
    """The jobs that `iris admin repair` names, because commits that are lost were about them."""
    found = re.search(r"jobs that events of lost commits speak of: (.*)", words)
    return set(re.findall(r"/job-\d+", found[1])) if found is not None else set()
