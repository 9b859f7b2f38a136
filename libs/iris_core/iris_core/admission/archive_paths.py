"""Which names and links an archive may hold, whoever made it: nothing in it leads out of its
directory. Pure.

A path is made of plain names. A link leads up only by its first steps and then down, so that it
stays inside whatever it passes through, as long as nothing is unpacked through a link. Source:
    docs/design/reliability.md#security.
"""

from __future__ import annotations

MAX_NAME = 255
MAX_PATH = 1024
MAX_DEPTH = 64
"""Directories below one another; who walks them may hold a descriptor or a frame for each."""


class InvalidArchive(Exception):
    """An archive that must not be unpacked; the text says which entry and why."""


def names(text: str) -> tuple[str, ...]:
    """The components of a relative path; ``.`` and repeated slashes are skipped. Raises
    InvalidArchive.
    """
    if text.startswith("/"):
        raise InvalidArchive(f"{text[:200]!r} is an absolute path")
    if len(text) > MAX_PATH:
        raise InvalidArchive(f"a path of {len(text)} characters")
    found = tuple(part for part in text.split("/") if part not in ("", "."))
    if len(found) > MAX_DEPTH:
        raise InvalidArchive(f"{text[:200]!r} is below more than {MAX_DEPTH - 1} directories")
    for part in found:
        if part == ".." or "\0" in part or len(part.encode(errors="surrogateescape")) > MAX_NAME:
            raise InvalidArchive(f"{text[:200]!r} holds a name that is not allowed")
    return found


def leads_out(path: tuple[str, ...], target: str) -> bool:
    """Whether the target of a symbolic link at ``path`` may be outside."""
    if not target or target.startswith("/") or "\0" in target or len(target) > MAX_PATH:
        return True
    steps = [part for part in target.split("/") if part not in ("", ".")]
    ups = 0
    while ups < len(steps) and steps[ups] == "..":
        ups += 1
    return ups > len(path) - 1 or ".." in steps[ups:]


def check_link(path: tuple[str, ...], target: str) -> None:
    """Refuse a symbolic link that may lead out. Raises InvalidArchive."""
    if leads_out(path, target):
        raise InvalidArchive(
            f"{'/'.join(path)[:200]!r} is a link out of its directory, to {target[:200]!r}"
        )
