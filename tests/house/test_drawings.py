"""The drawn pages are up to date with the code."""

import tomllib

import pytest

import draw
import iris
from drawings.architecture import architecture_document
from drawings.async_client import UNLISTED
from drawings.cli import cli_document
from drawings.configuration import SECTIONS, setting_rows
from drawings.http import http_document
from drawings.metrics import metrics_document, registries
from drawings.sdk import sdk_document
from drawings.states import states_document
from drawings.subjects import subjects_document
from iris.cli.root import COMMANDS
from iris_core import subjects
from iris_core.access.roles import ROLES
from iris_core.tables import job, task
from iris_gateway.api import ENDPOINTS
from iris_service import settings


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


BUCKETS = (subjects.SNAPSHOTS_BUCKET, subjects.BUNDLES_BUCKET, subjects.DISCOVERY_BUCKET)


def test_the_architecture_shows_every_service_and_every_store():
    text = architecture_document()
    services = {role.name for role in ROLES} - {"admin", "observer"}
    assert [name for name in services if f">{name}</text>" not in text] == []
    assert [stream.name for stream in subjects.STREAMS if f">{stream.name}: " not in text] == []
    assert [bucket for bucket in BUCKETS if f">{bucket}<" not in text] == []
    direct = {one.message for one in subjects.SUBJECTS if one.reader.startswith("state (leader)")}
    assert [message for message in direct if message not in text] == []


def test_a_new_message_in_the_table_draws_a_new_arrow(monkeypatch):
    row = subjects.Subject("iris.x", subjects.MessagePattern.CORE, "proxy", "scheduler", "Surprise")
    monkeypatch.setattr(subjects, "SUBJECTS", (*subjects.SUBJECTS, row))
    assert "Surprise" in architecture_document()


def test_every_section_of_the_settings_is_drawn():
    assert set(settings.SECTIONS) == set(SECTIONS)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_has_a_row_with_its_default_and_meaning(section):
    rows = setting_rows(section)
    assert [key for key, _, meaning in rows if not meaning] == []
    file = "\n".join(f"{key} = {value}".replace("`", "") for key, value, _ in rows if value)
    read = tomllib.loads(f"[{section}]\n{file}")[section].values()
    keys = sum(len(one) if isinstance(one, dict) else 1 for one in read)
    assert keys == sum(1 for _, value, _ in rows if value) > 0


def test_every_metric_of_iris_is_drawn():
    shown = {family.name for registry in registries().values() for family in registry.collect()}
    text = metrics_document()
    assert [name for name in shown if name.startswith("iris_") and f"| `{name}" not in text] == []


def test_every_command_is_drawn_with_its_options():
    text = cli_document()
    assert [name for name in COMMANDS if f"\n## iris {name}\n" not in text] == []
    create = text.split("\n### iris deploy create\n")[1].split("\n### ")[0]
    assert (
        "* `--max-surge N`: Routes above --replicas in an update: 1, 25%.  [default: 1]" in create
    )


def test_every_endpoint_is_drawn():
    text = http_document()
    headings = [f"\n### {endpoint.method} {endpoint.path}\n" for endpoint in ENDPOINTS]
    assert [heading for heading in headings if heading not in text] == []


def test_every_public_name_of_the_sdk_is_drawn():
    text = sdk_document()
    names = [name for name in iris.__all__ if not name.startswith("__")]
    assert [name for name in names if f"\n## {name}\n" not in text] == []
    assert "* `wait(timeout: float | None = None) -> JobView`: Wait until the job has ended" in text


@pytest.mark.parametrize(
    ("kind", "asynchronous"),
    [
        (iris.Client, iris.AsyncClient),
        (iris.Job, iris.AsyncJob),
        (iris.Deployment, iris.AsyncDeployment),
    ],
)
def test_every_public_method_has_an_asynchronous_one(kind, asynchronous):
    public = {name for part in kind.__mro__ for name in vars(part) if not name.startswith("_")}
    assert {name for name in public if not hasattr(asynchronous, name)} <= UNLISTED
