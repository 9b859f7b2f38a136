"""`iris up` on a machine with GPUs: stand-in device files, in a mount namespace of the test's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.cluster import IRIS, environment

pytestmark = pytest.mark.integration

NODES = """
set -e
for file in null zero full random urandom tty; do : > $0/$file; mount --bind /dev/$file $0/$file; done
for directory in pts shm; do mkdir $0/$directory; mount --rbind /dev/$directory $0/$directory; done
ln -s pts/ptmx $0/ptmx
ln -s /proc/self/fd $0/fd
for name in nvidia0 nvidia1 nvidia2 nvidiactl; do : > $0/$name; done
mount --rbind $0 /dev
set +e
"""
DAY = """
iris up -d --http 127.0.0.1:0
iris worker list -o json
iris run --gpu 2 -- sh -c 'echo two $CUDA_VISIBLE_DEVICES'
iris run --gpu 1 -- sh -c 'echo one $CUDA_VISIBLE_DEVICES'
iris run -- sh -c 'echo none $CUDA_VISIBLE_DEVICES'
iris plan --gpu 3 -- true
iris down
"""


@pytest.mark.needs("mounts")
def test_hosts_of_a_local_cluster_divide_the_gpus_of_the_machine(tmp_path: Path):
    (tmp_path / "dev").mkdir()
    program = " ".join(IRIS)
    script = f'{NODES}\niris() {{ {program} "$@"; }}\n{DAY}'
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, tmp_path / "dev"],
        env={
            **environment(),
            "IRIS_DATA": str(tmp_path / "data"),
            "IRIS_WORKER_CONTAINER_RUNTIME": "none",
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    lines = done.stdout.splitlines()
    assert "two 0,1" in lines, done.stderr
    assert {"one 0", "one 2"} & {*lines}
    assert "none" in lines
    assert "warning: 2 hosts share 3 GPUs: 2, 1; --workers 1 offers them together" in done.stderr
    assert "not enough chips: asks for 3" in done.stdout
    assert done.stdout.count('"device-type": "gpu"') + done.stdout.count('"device-type":"gpu"') == 2
