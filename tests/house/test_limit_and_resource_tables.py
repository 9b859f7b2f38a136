"""Adding a limit or a resource takes the rows that CONTRIBUTING lists; no other code names them."""

import json
import os
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from drawings.configuration import configuration_document
from iris.cli.commands.operate.quota import quota
from iris.cli.commands.run.run import run
from iris_core import quota as limits
from iris_core.quota import GATEWAY_LIMITS, QUOTA_LIMITS
from iris_core.spec import resources
from iris_core.spec.resources import REQUESTED, RESOURCES
from iris_gateway.api.meta import limits_of
from iris_gateway.settings import GatewaySettings
from tests.house.repository import ROOT, sources, texts
from tests.support.added_rows import ADDED

CHECKLISTS = ("Add a limit of a user", "Add a resource")


@pytest.fixture(scope="module")
def shown() -> dict[str, bool]:
    """Where a resource and a limit are shown that were only added to their tables."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "docs")])
    command = [sys.executable, "-m", "tests.support.added_rows"]
    done = subprocess.run(
        command, capture_output=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_new_row_is_everywhere_at_once(shown):
    assert [place for place, there in shown.items() if not there] == []


@pytest.mark.parametrize("title", CHECKLISTS)
def test_a_checklist_names_at_most_three_files_and_the_right_ones(title):
    text = next(text for path, text in texts().items() if path.name == "CONTRIBUTING.md")
    steps = text.split(f"### {title}\n")[1].split("\n#")[0]
    files = re.findall(r"`((?:iris_|tests/)[a-z_/]+\.py)`", steps)
    assert len(set(files)) <= 3
    assert set(files) & {f"{module.replace('.', '/')}.py" for module in ADDED}


@pytest.mark.parametrize(("module", "shape"), [(resources, "Amount"), (limits, "Quota")])
def test_a_row_without_its_field_is_refused_at_import(module, shape, monkeypatch):
    table = "RESOURCES" if shape == "Amount" else "QUOTA_LIMITS"
    monkeypatch.setattr(module, table, getattr(module, table)[:-1])
    with pytest.raises(ValueError, match=shape):
        module._guard()


def test_every_row_is_an_option_and_a_line_of_the_documentation():
    text = configuration_document()
    submit, set_quota = (
        CliRunner().invoke(c, [*w, "--help"]).output for c, w in ((run, []), (quota, ["set"]))
    )
    assert [row.name for row in REQUESTED if f"--{row.word.replace('_', '-')}" not in submit] == []
    assert [
        row.name for row in QUOTA_LIMITS if f"--{row.name.replace('_', '-')}" not in set_quota
    ] == []
    assert [
        row.name
        for row in (*RESOURCES, *QUOTA_LIMITS, *GATEWAY_LIMITS)
        if f"| `{row.name}` |" not in text
    ] == []


def test_every_limit_that_all_users_share_is_a_setting_and_told():
    settings = GatewaySettings(
        requests_per_s=3.0, intake_per_s=4.0, watchers_per_user=5, uploads_per_user=6
    )
    assert [limits_of(settings)[row.name] for row in GATEWAY_LIMITS] == [3, 4, 5, 6]
    per_user = {
        name for name in GatewaySettings.__struct_fields__ if name.endswith(("_per_s", "_per_user"))
    }
    assert per_user == {row.name for row in GATEWAY_LIMITS}


_LIMITED = {
    "iris_worker.launcher.cgroups.limits",
    "iris_worker.host.host",
    "iris.cluster.programs",
    "iris.cluster.__main__",
}
_SUMMED = {
    "iris_state.records.indexes.usage_days",
    "iris_state.records.indexes.running_usage",
}
NAMED_BESIDE_THE_TABLE = {
    "memory_bytes": _LIMITED | _SUMMED | {"iris_core.placement.limits"},
    "cpu_millis": _LIMITED | _SUMMED | {"iris_worker.environment"},
    "disk_bytes": {"iris_worker.host.host"},
}
"""Where a resource is enforced, that it is not, found, given to a simulated host, told to a task, or
summed in units of its own.
"""


@pytest.mark.parametrize("name", [row.name for row in REQUESTED])
def test_a_resource_is_named_in_its_table_and_where_it_is_found_only(name):
    product = [
        s
        for s in sources()
        if s.path.parts[0] in ("libs", "services") and s.module != "iris_core.spec.resources"
    ]
    used = {s.module for s in product if re.search(rf"\b{name}\b", texts()[s.path])}
    assert used - {"iris_core.quota"} <= NAMED_BESIDE_THE_TABLE[name]
