"""The Grafana dashboards are valid JSON of the expected shape; no Grafana is needed."""

import json
from itertools import pairwise

import pytest

from drawings.alerts import ALERTS
from drawings.dashboards import DASHBOARDS, DATASOURCE, panels
from drawings.metrics import registries
from tests.house.repository import ROOT

GRAFANA = ROOT / "deploy" / "grafana"


def dashboard(uid):
    return json.loads((GRAFANA / "dashboards" / f"{uid}.json").read_text())


def test_no_other_file_lies_beside_the_dashboards():
    assert {path.stem for path in (GRAFANA / "dashboards").iterdir()} == set(DASHBOARDS)


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_panels_have_ids_of_their_own_and_do_not_overlap(uid):
    shown = dashboard(uid)["panels"]
    assert len({panel["id"] for panel in shown}) == len(shown)
    cells = [
        (x, y)
        for panel in shown
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_the_rows_follow_one_another(uid):
    heights = [
        panel["gridPos"]["y"] for panel in dashboard(uid)["panels"] if panel["type"] == "row"
    ]
    assert all(above < below for above, below in pairwise(heights))


def test_every_query_goes_to_the_provisioned_data_source():
    provisioned = (GRAFANA / "provisioning" / "datasources" / "iris.yml").read_text()
    assert f"uid: {DATASOURCE}\n" in provisioned
    sources = {
        panel["datasource"]["uid"]
        for uid in DASHBOARDS
        for panel in dashboard(uid)["panels"]
        if "targets" in panel
    }
    assert sources == {DATASOURCE}


def test_every_metric_of_iris_has_a_panel_or_an_alert():
    asked = " ".join(
        [query for panel in panels() for query, _ in panel.queries]
        + [alert.query for alert in ALERTS]
    )
    names = {family.name for registry in registries().values() for family in registry.collect()}
    not_shown = {"iris_journal_sequence"}
    assert {name for name in names if name.startswith("iris_") and name not in asked} == not_shown


def test_a_panel_of_quantiles_says_why_it_may_be_empty():
    """A quantile of a histogram that counted nothing in the interval is no number."""
    quantiles = [
        panel
        for panel in panels()
        if any("histogram_quantile" in query for query, _ in panel.queries)
    ]
    assert [panel.title for panel in quantiles if not (panel.empty or panel.idle)] == []
    assert quantiles
