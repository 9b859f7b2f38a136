"""Each option of a deployment, in `iris deploy create` and in `iris deploy update`, on a cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iris.cli import main
from iris.client.problems import InvalidOption
from iris_core.codec import from_builtins, to_builtins
from iris_core.spec.jobs import Environment
from iris_core.spec.option_table import DeployOptions, rows_of
from iris_core.spec.resources import REQUESTED
from iris_core.spec.serving import DeploymentSpec
from tests.support.cluster import Cluster

pytestmark = pytest.mark.integration

VALUES: dict[str, tuple[str, str]] = {
    "band": ("batch", "production"),
    "constraints": ("zone=a", "zone!=b"),
    "cooldown": ("20s", "30s"),
    "cpu": ("0.5", "2"),
    "cpu_limit": ("2", "3"),
    "disk": ("1GiB", "2GiB"),
    "env": ("A=1", "A=2"),
    "gpu": ("H100x8", "A100"),
    "grace": ("10s", "20s"),
    "image": ("lab/serve:1", "lab/serve:2"),
    "labels": ("team=a", "team=b"),
    "max_replicas": ("4", "5"),
    "max_surge": ("2", "25%"),
    "max_unavailable": ("2", "25%"),
    "memory": ("1GiB", "2GiB"),
    "min_ready": ("1s", "2s"),
    "min_replicas": ("0", "1"),
    "panic_window": ("5s", "7s"),
    "pause_after": ("1", "2"),
    "ports": ("web", "api"),
    "prefer": ("zone=a", "zone!=b"),
    "probe_command": ("true", "test -e 'a b'"),
    "probe_failures": ("5", "6"),
    "probe_grace": ("5s", "6s"),
    "probe_initial_delay": ("1s", "2s"),
    "probe_interval": ("5s", "6s"),
    "probe_passes": ("2", "4"),
    "probe_path": ("/up", "/healthy"),
    "probe_ready_path": ("/ready", "/free"),
    "probe_timeout": ("2s", "3s"),
    "progress_deadline": ("20m", "30m"),
    "python": ("3.11", "3.12"),
    "replicas": ("0", "0"),
    "retry": ("idempotent", "never"),
    "scale_query": ("sum(a)", "sum(b)"),
    "scale_window": ("30s", "50s"),
    "settle": ("1s", "3s"),
    "setup": ("make", "make all"),
    "spread": ("none", "hosts"),
    "stabilization": ("200s", "400s"),
    "start_timeout": ("1m", "2m"),
    "target_outstanding": ("2", "3"),
    "target_per_route": ("2", "3"),
    "tpu": ("v4-8", "v5litepod-4"),
}
"""Two values of each option that has one: the first of `create`, then the second of `update`."""
SWITCHES = {"forward_authorization", "no_scaling", "probe_tcp", "rollback"}
FIXED = {"user", "project"}
"""Options of `create` that a deployment keeps."""
FLAGS = {
    **{row.name: row.flags[-1] for row in rows_of(DeployOptions)},
    **{resource.word: f"--{resource.word}" for resource in REQUESTED},
}
NONE = ("--replicas", "0")


@pytest.fixture
def deploy(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., None]:
    """`iris deploy ...` in this process; it succeeds."""
    monkeypatch.setenv("IRIS_DATA", str(cluster.data))

    def run(*words: str) -> None:
        capfd.readouterr()
        assert main(["deploy", *words]) == 0, (words, capfd.readouterr().err)

    return run


def spec_of(cluster: Cluster, name: str) -> DeploymentSpec:
    """What a deployment was asked to be, but for its name."""
    whole = to_builtins(cluster.client.deployment(name).view.spec)
    return from_builtins({**whole, "name": "some"}, DeploymentSpec)


def given(name: str, turn: int) -> tuple[str, ...]:
    if name in SWITCHES:
        return (FLAGS[name],)
    return (FLAGS[name], VALUES[name][turn])


def test_each_option_has_values_here():
    assert VALUES.keys() | SWITCHES | FIXED == FLAGS.keys()


@pytest.mark.parametrize("name", sorted(VALUES.keys() | SWITCHES))
def test_an_option_makes_the_same_deployment_when_it_comes_later(cluster, deploy, name):
    command = ("--", "serve")
    made = [f"{name}-{number}".replace("_", "-") for number in range(3)]
    try:
        deploy("create", made[0], *NONE, *given(name, 0), *command)
        deploy("create", made[1], *NONE, *given(name, 1), *command)
        deploy("create", made[2], *NONE, *command)
        first, second, without = (spec_of(cluster, one) for one in made)
        deploy("update", made[2], *given(name, 0))
        assert spec_of(cluster, made[2]) == first
        deploy("update", made[2], *given(name, 1))
        assert spec_of(cluster, made[2]) == second
        assert name in {"no_scaling", "rollback", "replicas"} or first != without
    finally:
        for one in made:
            main(["deploy", "delete", one])


def test_packages_of_a_directory_are_installed_by_new_and_old_deployments(
    cluster, deploy, tmp_path
):
    (tmp_path / "requirements.txt").write_text("einops\n")
    (tmp_path / "serve.py").write_text("")
    code = (*NONE, "--workdir", str(tmp_path), "--", "python", "serve.py")
    try:
        deploy("create", "options-new", *code)
        deploy("create", "options-old", *NONE, "--", "serve")
        deploy("update", "options-old", *code)
        bundle = cluster.client.send_bundle(tmp_path)
        cluster.client.deploy(
            ["python", "serve.py"],
            "options-sdk",
            replicas=0,
            bundle=bundle.digest,
            packages=bundle.packages,
        )
        specs = [spec_of(cluster, f"options-{one}") for one in ("new", "old", "sdk")]
        assert specs[0].template.environment == Environment(packages="requirements.txt")
        assert specs[0] == specs[1] == specs[2]
    finally:
        for one in ("new", "old", "sdk"):
            main(["deploy", "delete", f"options-{one}"])


def test_a_deployment_keeps_its_owner(cluster, deploy):
    deploy("create", "options-owned", *NONE, "--user", "ann", "--", "serve")
    try:
        found = cluster.client.deployment("options-owned")
        assert found.view.user == "ann"
        with pytest.raises(InvalidOption, match="user: a deployment keeps its owner"):
            found.update(user="bob", replicas=0)
    finally:
        main(["deploy", "delete", "options-owned"])
