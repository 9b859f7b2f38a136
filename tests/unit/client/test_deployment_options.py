"""Options of a deployment: only given ones are sent."""

from __future__ import annotations

import pytest

from iris.client.options.deployments import deployment_fields
from iris.client.problems import InvalidOption
from iris_core.admission.deployments import validate_deployment
from iris_core.codec import from_builtins
from iris_core.spec.serving import DeploymentSpec


def test_only_what_is_said_is_sent():
    assert deployment_fields(None, {"replicas": 5}) == {"replicas": 5}
    assert deployment_fields(["serve", "v2"], {}) == {"template": {"command": ["serve", "v2"]}}
    assert deployment_fields(None, {"cpu": "0.5", "env": {"A": "1"}, "band": "batch"}) == {
        "template": {"band": "batch", "env": {"A": "1"}, "resources": {"cpu_millis": 500}}
    }
    assert deployment_fields(None, {"spread": "none"}) == {"template": {"spread": "none"}}
    assert deployment_fields(
        None, {"max_surge": "2", "max_unavailable": "25%", "rollback": False}
    ) == {"update": {"max_surge": 2, "max_unavailable": "25%", "rollback": False}}
    assert deployment_fields(None, {"settle": "500ms", "grace": 10}) == {
        "settle_s": 0.5,
        "grace_s": 10.0,
    }


def test_the_first_port_serves_and_is_probed():
    assert deployment_fields(None, {"ports": ["web", "admin"], "probe_path": "/up"}) == {
        "port": "web",
        "template": {
            "ports": ["web", "admin"],
            "probe": {"kind": "http", "path": "/up", "port": "web"},
        },
    }


@pytest.mark.parametrize(
    ("options", "probe"),
    [
        ({"probe_tcp": True, "probe_interval": "1m"}, {"kind": "tcp", "interval_s": 60.0}),
        ({"probe_command": "test -e 'a b'"}, {"kind": "command", "command": ["test", "-e", "a b"]}),
        (
            {"probe_command": ["true"], "start_timeout": 5},
            {"kind": "command", "command": ["true"], "start_timeout_s": 5},
        ),
        ({"probe_failures": 2, "probe_grace": "0s"}, {"failures": 2, "grace_s": 0.0}),
    ],
)
def test_a_probe_is_worded(options, probe):
    assert deployment_fields(None, options) == {"template": {"probe": probe}}


def test_a_short_deadline_needs_no_start_timeout_in_a_new_deployment():
    for deadline in ("10m", "20s", "2h"):
        fields = deployment_fields(
            ["serve"], {"progress_deadline": deadline, "user": "ann"}, new=True
        )
        spec = from_builtins({"name": "chat", **fields}, DeploymentSpec)
        assert validate_deployment(spec) == []


def test_every_mistake_is_told_at_once():
    options = {
        "probe_tcp": True,
        "probe_path": "/up",
        "grace": "soon",
        "cpu": "many",
        "tpu": "v5litepod-16",
    }
    with pytest.raises(InvalidOption) as caught:
        deployment_fields("serve", options)
    said = str(caught.value)
    for words in (
        "specify one of them",
        "'soon' is not a time",
        "'many' is not a number",
        "takes",
        "a list of words",
    ):
        assert words in said


def test_a_scaling_rule_is_worded_and_removed():
    options = {
        "min_replicas": 0,
        "max_replicas": 9,
        "target_outstanding": 2.5,
        "scale_window": "30s",
        "cooldown": 5,
    }
    rule = {"minimum": 0, "maximum": 9, "outstanding": 2.5, "window_s": 30.0, "cooldown_s": 5.0}
    assert deployment_fields(None, options) == {"scaling": rule}
    assert deployment_fields(None, {"scale_query": "sum(q)", "target_per_route": 7.0}) == {
        "scaling": {"query": "sum(q)", "per_route": 7.0}
    }
    assert deployment_fields(None, {"no_scaling": True, "replicas": 2}) == {
        "replicas": 2,
        "scaling": None,
    }
    with pytest.raises(InvalidOption, match="changed or removed, not both"):
        deployment_fields(None, {"no_scaling": True, "max_replicas": 2})


def test_other_code_or_another_setup_replaces_the_environment():
    digest = "0" * 64
    fields = {
        "new code with packages": deployment_fields(
            None, {"bundle": digest, "packages": "requirements.txt"}
        ),
        "new code without": deployment_fields(None, {"bundle": digest, "packages": ""}),
        "a setup": deployment_fields(None, {"setup": "make"}),
        "no setup": deployment_fields(None, {"setup": ""}),
        "a version": deployment_fields(None, {"python": "3.12"}),
        "an image": deployment_fields(
            None, {"bundle": digest, "packages": "requirements.txt", "image": "lab/train:1"}
        ),
    }
    assert {name: given["template"]["environment"] for name, given in fields.items()} == {
        "new code with packages": {
            "packages": "requirements.txt",
            "setup": None,
            "python": None,
            "image": None,
        },
        "new code without": None,
        "a setup": {"packages": None, "setup": "make", "python": None, "image": None},
        "no setup": None,
        "a version": {"python": "3.12"},
        "an image": {"packages": None, "setup": None, "python": None, "image": "lab/train:1"},
    }
