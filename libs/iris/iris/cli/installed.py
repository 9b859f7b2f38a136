"""Looks whether the packages of an extra are installed."""

from __future__ import annotations

from importlib.util import find_spec

from iris.cli.extras import SERVER_MODULES, MissingExtra, remedy


def require_extra(extra: str, what: str) -> None:
    """Raises MissingExtra when a module of an extra, ``server`` or ``local``, is not there."""
    missing = sorted(name for name in SERVER_MODULES if find_spec(name) is None)
    if missing:
        raise MissingExtra(remedy(extra, what, missing[0]))
