"""Applies changes of projects. Source: docs/design/team.md#projects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iris_core.spec.projects import ProjectSpec
from iris_state.records.facts import ProjectFact
from iris_state.records.ledger import Ledger
from iris_state.records.project_changes import ProjectRemoved, ProjectSet
from iris_state.records.projects import Project
from iris_state.records.projects_in_words import changes_in_words


def project_set(ledger: Ledger, change: ProjectSet, at_ms: int) -> None:
    """Make a project, or replace its specification."""
    known = ledger.projects.find(change.path)
    before = known.spec if known is not None else ProjectSpec()
    version = known.version + 1 if known is not None else 1
    ledger.projects.put(Project(change.path, change.spec, version, at_ms, change.by))
    if before.weight != change.spec.weight:
        ledger.follow_weights(at_ms)
    words = tuple(changes_in_words(before, change.spec))
    ledger.facts.append(ProjectFact(change.path, "set", words, at_ms, by=change.by))


def project_removed(ledger: Ledger, change: ProjectRemoved, at_ms: int) -> None:
    known = ledger.projects.find(change.path)
    ledger.projects.drop(change.path)
    if known is not None and known.spec.weight is not None:
        ledger.follow_weights(at_ms)
    ledger.facts.append(ProjectFact(change.path, "removed", (), at_ms, by=change.by))


WRITERS: dict[type, Callable[[Ledger, Any, int], None]] = {
    ProjectSet: project_set,
    ProjectRemoved: project_removed,
}
