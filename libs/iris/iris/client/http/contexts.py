"""Named gateways of a user: a private file with an address and a token for each.

Kept as ``iris/contexts.json`` under ``$XDG_CONFIG_HOME`` (``~/.config``), readable by its owner
only. Out of
scope: choosing between a context and other sources (`address`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from iris.client.decode import from_json
from iris.client.problems import InvalidOption
from iris_core.codec import Undecodable


class Context(msgspec.Struct, frozen=True):
    """One gateway: its address, and its bearer token (may be empty)."""

    url: str
    token: str = ""


class Contexts(msgspec.Struct, frozen=True):
    """Everything in the file; ``current`` names the one in use, empty for none."""

    current: str = ""
    known: dict[str, Context] = {}


def contexts_path(environ: Mapping[str, str] = os.environ) -> Path:
    """The path of the file, whether or not it exists."""
    home = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return home / "iris" / "contexts.json"


def load_contexts(path: Path) -> Contexts:
    """The content of the file; empty when it does not exist. Raises InvalidOption when it cannot be
    read.
    """
    try:
        return from_json(path.read_bytes(), Contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise InvalidOption(f"the contexts in {path} cannot be read: {error.strerror}") from None
    except Undecodable:
        raise InvalidOption(
            f"{path} is not a file of contexts; correct it, or delete it and add them again"
        ) from None


def save_contexts(path: Path, contexts: Contexts) -> None:
    """Replace the file."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_private(path, contexts)


def replace_private(path: Path, value: msgspec.Struct) -> None:
    """Replace a JSON file atomically; it is readable by its owner only."""
    draft = path.with_name(f".{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(value)) + b"\n")
    draft.replace(path)
