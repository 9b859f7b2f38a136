"""Which build this is: the release, and in a checkout its commit, as ``0.1.0+g94e69443``.

An installed wheel is the release alone. Out of scope: changes of a checkout that are not committed.
"""

from __future__ import annotations

from pathlib import Path

from iris_core import __version__

_SHOWN = 8
"""Digits of a commit."""


def build_version(release: str, module: Path) -> str:
    """The version of the code that a module is part of.

    Args:
        release: as ``__version__`` says. module: a file two folders below ``libs`` of a checkout,
            or anywhere else in an installation.

    Returns:
        ``release``, with ``+g`` and the first digits of the commit in a checkout whose commit can
        be read. Never raises. Source: PEP 440, local version identifiers.
    """
    above = module.resolve().parents
    if len(above) < 4 or above[2].name != "libs" or not (above[3] / "pyproject.toml").is_file():
        return release
    try:
        commit = head_commit(above[3] / ".git")
    except (OSError, ValueError):
        return release
    return f"{release}+g{commit[:_SHOWN]}" if commit else release


def head_commit(git: Path) -> str:
    """The commit that is checked out, empty when it is not found.

    Args:
        git: the directory of a repository, or the file that a worktree has in its place.

    Raises OSError, ValueError for what is no repository. Source: gitrepository-layout(5).
    """
    if git.is_file():
        git = git.parent / git.read_text().removeprefix("gitdir:").strip()
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref:"):
        return _hexadecimal(head)
    name = head.removeprefix("ref:").strip()
    shared = git / (git / "commondir").read_text().strip() if (git / "commondir").exists() else git
    for place in (git, shared):
        if (place / name).is_file():
            return _hexadecimal((place / name).read_text().strip())
    for line in (shared / "packed-refs").read_text().splitlines():
        commit, _, packed = line.partition(" ")
        if packed == name:
            return _hexadecimal(commit)
    return ""


def _hexadecimal(commit: str) -> str:
    """A commit as it is. Raises ValueError for another text."""
    int(commit, 16)
    return commit


VERSION = build_version(__version__, Path(__file__))
"""Of this process."""
