"""The story player, for every test of the state service."""

from tests.support.script import script

__all__ = ["script"]
