"""The fixture that plays stories, for all tests of the state service."""

from tests.support.script import script

__all__ = ["script"]
