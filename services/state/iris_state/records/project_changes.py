"""The entries of the journal about projects. Types only; see `changes`."""

from __future__ import annotations

import msgspec

from iris_core.access.actor import Actor
from iris_core.spec.projects import ProjectSpec


class ProjectSet(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=80):
    """A project exists with this specification."""

    path: str
    spec: ProjectSpec
    by: Actor | None = None


class ProjectRemoved(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=81):
    """A project is gone; jobs that have ended keep its path."""

    path: str
    by: Actor | None = None


PROJECT_KINDS = (ProjectSet, ProjectRemoved)
"""The kinds of changes of projects."""
