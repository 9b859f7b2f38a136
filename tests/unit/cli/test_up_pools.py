"""What `iris up --pool` takes, and the names of the hosts that such pools may have."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from iris.cli.commands.operate.admin.admin import admin
from iris.client.problems import InvalidOption
from iris.cluster.pools import read_pools, slot_hosts, slots_in
from iris_core.access.roles import login
from iris_provisioner.providers.slot_keys import SlotKeys
from iris_service.slice_processes import running_hosts


def test_a_pool_of_processes_in_a_few_words() -> None:
    [pool] = read_pools(["cpu:max=8,min=1,cpu=2,memory=1GiB,idle=5s,boot=2s"])
    assert (pool.name, pool.provider, pool.max, pool.min) == ("cpu", "process", 8, 1)
    assert (pool.resources.cpu_millis, pool.resources.memory_bytes) == (2000, 1 << 30)
    assert (pool.idle_s, pool.options) == (5.0, {"boot_s": 2.0})


def test_a_pool_of_a_tpu_variant_has_its_hosts() -> None:
    [pool] = read_pools(["v5e:max=2,tpu=v5litepod-16"])
    assert (pool.hosts, pool.resources.chips) == (4, 4)
    assert slot_hosts([pool]) == [f"v5e-{slot}-{index}" for slot in (0, 1) for index in range(4)]


def test_a_pool_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "big.json"
    shape = {"cpu_millis": 64000}
    spec = {"name": "big", "provider": "process", "max": 1, "resources": shape}
    file.write_text(json.dumps(spec))
    assert [pool.name for pool in read_pools(["cpu:max=1", str(file)])] == ["cpu", "big"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cpu", "says no max"),
        ("Cpu:max=1", "is no pool"),
        ("cpu:max=many", "'many' is not a number"),
        ("cpu:max=1,speed=2", "'speed=2' is not KEY=VALUE with a key of max, min"),
        ("cpu:max=1,min=2", "min 2 is more than max 1"),
    ],
)
def test_what_is_no_pool_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(words)):
        read_pools([text])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "nofile.toml")
    words = f"--pool {missing}: the file cannot be read: No such file or directory"
    with pytest.raises(InvalidOption, match=f"^{re.escape(words)}$"):
        read_pools([missing])


def test_a_cluster_reads_no_pool_from_its_input() -> None:
    with pytest.raises(InvalidOption, match=r"^--pool -: a cluster reads no pool from its input"):
        read_pools(["-"])


def test_two_pools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidOption, match="two pools cpu"):
        read_pools(["cpu:max=1", "cpu:max=2"])


def test_only_processes_that_the_provisioner_has_started_are_its_hosts(tmp_path: Path) -> None:
    slice_ = tmp_path / "cpu-0"
    slice_.mkdir()
    with subprocess.Popen(["sleep", "600"]) as process:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        mine = {"name": "cpu-0-0", "pid": process.pid, "began": int(fields[19])}
        stale = {"name": "cpu-0-1", "pid": os.getpid(), "began": 1}
        (slice_ / "slice.json").write_text(json.dumps({"hosts": [mine, stale]}))
        assert [host.pid for host in running_hosts(tmp_path)] == [process.pid]
        process.kill()
    assert running_hosts(tmp_path) == []
    (slice_ / "slice.json").write_text("{")
    assert running_hosts(tmp_path) == []


def test_keys_of_slots_are_made_for_the_pools_of_a_listing(tmp_path: Path) -> None:
    shown = [{"name": "v5e", "max": 2, "hosts": 2, "state": "ok"}, {"name": "cpu", "max": 1}]
    file = tmp_path / "pools.json"
    file.write_text(json.dumps(shown))
    out = tmp_path / "out"
    done = CliRunner().invoke(admin, ["nats-config", "--out", str(out), "--pools", str(file)])
    assert done.exit_code == 0, done.output
    hosts = ["v5e-0-0", "v5e-0-1", "v5e-1-0", "v5e-1-1", "cpu-0-0"]
    keys = {login("worker", host).label for host in hosts}
    assert keys == {path.stem for path in (out / "keys").glob("worker-*")}
    assert all(f"{label}" in (out / "accounts.conf").read_text() for label in keys)
    assert SlotKeys(str(out / "keys")).keyed("v5e", slots=3, hosts=2) == 2


@pytest.mark.parametrize(
    "text", ["", "[1]", '[{"name": "cpu"}]', '[{"name": "a/b", "max": 1}]', '{"max": 2}']
)
def test_what_is_no_listing_of_pools_makes_no_keys(text: str) -> None:
    with pytest.raises(InvalidOption, match=r"f\.json"):
        slots_in(text.encode(), "f.json")
