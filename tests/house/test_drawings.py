"""The drawn pages are up to date with the code."""

import tomllib

import pytest

import draw
from drawings.configuration import SECTIONS, configuration_document
from drawings.metrics import metrics_document, registries
from drawings.states import states_document
from drawings.subjects import subjects_document
from iris_bus import settings
from iris_core import subjects
from iris_core.tables import job, task


def test_the_drawings_are_fresh():
    assert draw.stale() == []


def test_a_drawing_is_stale_when_a_table_has_moved_on(monkeypatch):
    monkeypatch.setattr(task, "TABLE", task.TABLE[1:])
    assert draw.stale() == ["docs/states.md"]


def test_every_row_of_a_table_is_drawn():
    text = states_document()
    assert [row.name for row in (*task.TABLE, *job.TABLE) if f"| `{row.name}` |" not in text] == []


def test_every_subject_is_drawn():
    text = subjects_document()
    assert [row.pattern for row in subjects.SUBJECTS if f"| `{row.pattern}` |" not in text] == []


def test_every_section_of_the_settings_is_drawn():
    assert set(settings.SECTIONS) == set(SECTIONS)


@pytest.mark.parametrize("section", SECTIONS)
def test_the_defaults_drawn_are_a_file_that_can_be_read(section):
    text = configuration_document().split(f"```toml\n[{section}]\n")[1].split("```")[0]
    assert tomllib.loads(text)


def test_every_metric_of_iris_is_drawn():
    shown = {family.name for registry in registries().values() for family in registry.collect()}
    text = metrics_document()
    assert [name for name in shown if name.startswith("iris_") and f"| `{name}" not in text] == []
