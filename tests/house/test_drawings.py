"""docs/states.md and docs/subjects.md say what the tables say."""

import importlib.util
from types import ModuleType

import pytest

from iris_core import subjects
from iris_core.tables import job, task
from tests.house.repository import ROOT


@pytest.fixture(scope="module")
def draw() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw", ROOT / "docs/draw.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawings_are_fresh(draw):
    assert draw.stale() == []


def test_a_drawing_is_stale_when_a_table_has_moved_on(draw, monkeypatch):
    monkeypatch.setattr(task, "TABLE", task.TABLE[1:])
    assert draw.stale() == ["states.md"]


def test_every_row_of_a_table_is_drawn(draw):
    text = draw.states_document()
    assert [row.name for row in (*task.TABLE, *job.TABLE) if f"| `{row.name}` |" not in text] == []


def test_every_subject_is_drawn(draw):
    text = draw.subjects_document()
    assert [row.pattern for row in subjects.SUBJECTS if f"| `{row.pattern}` |" not in text] == []
