"""A cluster starts, runs tasks and calls, and ends on machines that lack what others have: the rows
of docs/environments.md.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import environment
from tests.support.hosts import open_directory

pytestmark = [
    pytest.mark.integration,
    pytest.mark.soak,
    pytest.mark.needs("root", "mounts"),
    pytest.mark.timeout(600),
]

WITHIN_S = 300
ROUND = """
iris up --detach --http 127.0.0.1:0 --workers 1 $OPTIONS
trap 'iris down' EXIT
iris run --name said -- sh -c 'echo said by $(id -u); touch in-workdir'
iris logs said
cat > squares.py <<'END'
import iris

def square(number):
    return number * number

with iris.Client() as client:
    print(client.map(square, range(5), cpu=0.1).results())
END
python squares.py
iris doctor || echo "doctor: $?"
"""
CAPABILITIES = (
    "chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw"
    " sys_chroot mknod audit_write setfcap"
)
DOCKERS = f"""
if [ -z "$AGAIN" ]; then
  export AGAIN=yes
  exec setpriv --bounding-set=-all,+{",+".join(CAPABILITIES.split())} --inh-caps=-all sh -euc "$ALL"
fi
"""
DEAD = " ".join(
    f"{name}=http://127.0.0.1:9"
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "all_proxy")
)
NO_SHM = """
mkdir devices
mount -t tmpfs -o mode=755 none devices
for each in null zero full random urandom tty; do
  touch devices/$each; mount --bind /dev/$each devices/$each
done
mkdir devices/pts
mount --rbind /dev/pts devices/pts
ln -s pts/ptmx devices/ptmx
ln -s /proc/self/fd devices/fd
mount --move devices /dev
[ ! -e /dev/shm ]
"""
READ_ONLY = """
mount --bind "$PWD" "$PWD"
cd "$PWD"
mount -o remount,bind,ro /
! touch /in-root 2>/dev/null
"""
ENVIRONMENTS = {
    "nothing unusual": "",
    "no locale": "unset LANG LANGUAGE LC_ALL LC_CTYPE",
    "the locale C": "export LC_ALL=C",
    "umask 077": "umask 077",
    "umask 077, users of their own": "umask 077; OPTIONS=--sandbox",
    "one CPU": "taskset -cp 0 $$ >/dev/null",
    "HOME unset": "unset HOME",
    "a path that is not of ASCII": 'mkdir "Zoë ünd x"; cd "Zoë ünd x"; export TMPDIR=$PWD IRIS_DATA=$PWD/data',
    "dead proxies": f"export {DEAD}",
    "Docker's capabilities": DOCKERS,
    "Docker's capabilities, users of their own": DOCKERS + "OPTIONS=--sandbox",
    "no control groups": "umount -R /sys/fs/cgroup; [ ! -e /sys/fs/cgroup/memory ]",
    "no /dev/shm": NO_SHM,
    "no /dev/shm, users of their own": NO_SHM + "OPTIONS=--sandbox",
    "a read-only root": READ_ONLY + "export TMPDIR=$PWD",
    "a read-only root, users of their own": READ_ONLY
    + "mount -t tmpfs none /run\nexport TMPDIR=$PWD; OPTIONS=--sandbox",
    "a read-only root without a directory for temporary files": READ_ONLY,
    "data on a noexec mount": 'mkdir "$IRIS_DATA"; mount -t tmpfs -o noexec,mode=711 none "$IRIS_DATA"',
}


@pytest.fixture
def place() -> Iterator[Path]:
    with open_directory() as made:
        yield made


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_cluster_runs_tasks_and_calls_where_there_is(name: str, place: Path):
    script = f"{ENVIRONMENTS[name]}\n{ROUND}"
    environ = {
        **environment(),
        "IRIS_DATA": str(place / "data"),
        "PATH": f"{Path(sys.executable).parent}:{environment()['PATH']}",
        "OPTIONS": "",
        "AGAIN": "",
        "ALL": script,
    }
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-euc", script],
        cwd=place,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=WITHIN_S,
        check=False,
    )
    said = done.stdout.decode()
    print(said)
    assert done.returncode == 0, said
    assert "said by " in said
    assert "[0, 1, 4, 9, 16]" in said
    assert "is down; its data stays" in said
