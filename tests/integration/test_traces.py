"""A submission is one trace through all services and its tasks."""

from __future__ import annotations

import pytest

from tests.support.cluster import cluster_on
from tests.support.collector import collector

pytestmark = pytest.mark.integration


def test_a_submission_is_one_trace_from_the_gateway_to_the_end_of_its_task(tmp_path):
    with collector() as found:
        config = tmp_path / "iris.toml"
        config.write_text(f'[run]\notlp_endpoint = "{found.url}"\n')
        with cluster_on(tmp_path / "c", "--config", str(config)) as cluster:
            job = cluster.submit("sh", "-c", "echo $TRACEPARENT", name="traced")
            job.wait(60)
            [line] = cluster.iris("logs", "/traced").out.split()

        spans = {span.name: span for span in found.spans if span.trace_id == line[3:35]}
        root = spans.pop("POST /v1/jobs")
        assert (root.parent_id, line[36:52]) == ("", spans["order"].span_id)
        assert {name: (span.service, span.parent_id) for name, span in spans.items()} == {
            "admit": ("iris-state", root.span_id),
            "commit": ("iris-state", root.span_id),
            "plan": ("iris-scheduler", root.span_id),
            "order": ("iris-state", root.span_id),
            "start": ("iris-worker", spans["order"].span_id),
            "run": ("iris-worker", spans["start"].span_id),
        }
        assert len([span for span in found.spans if span.trace_id == root.trace_id]) == 7
        assert (spans["run"].attributes["task"], spans["run"].attributes["exit_code"]) == (
            "/traced/0",
            0,
        )
        assert (
            root.began_ns
            <= spans["commit"].ended_ns
            <= spans["run"].began_ns
            <= spans["run"].ended_ns
        )
