"""What a newcomer does in the first hour, on a machine without anything optional: from the checkout
and from the wheel.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house.repository import ROOT, tracked
from tests.support.cluster import environment

pytestmark = [pytest.mark.integration, pytest.mark.soak, pytest.mark.timeout(1800)]

INSTALL_S, HOUR_S = 900, 600

HOUR = """
iris --version
iris up --detach
iris doctor || test $? -eq 1  # where tasks have no control groups, say
iris run --name hello --replicas 3 -- sh -c 'echo hello from task $IRIS_TASK_INDEX'
iris show hello
iris logs hello

# One that fails, and why.
iris run --name wrong -- sh -c 'echo it broke >&2; exit 5' || test $? -eq 3
iris why wrong
iris ls

# A sweep of a script with code beside it, and what it has made.
mkdir work
echo 'FACTOR = 3' > work/factors.py
cat > work/sweep.py <<'END'
import os, pathlib
import factors

number = int(os.environ["IRIS_TASK_INDEX"])
pathlib.Path("out/result").write_text(f"{number} by 3 is {number * factors.FACTOR}\\n")
END
iris run --name sweep --array 0-3 --workdir work --output out -- python sweep.py
iris fetch sweep results
cat results/*/result

# Functions.
cat > squares.py <<'END'
import iris

def square(number):
    return number * number

with iris.Client() as client:
    print(client.map(square, range(5), cpu=0.1).results())
with iris.Executor(cpu=0.1) as executor:
    print(executor.submit(square, 12).result())
END
python squares.py

# What waits or runs for long, and its end.
iris run -d --name long --replicas 8 -- sleep 600
iris queue
iris worker list
iris cancel long

# A service.
mkdir service
cat > service/serve.py <<'END'
import http.server, os

class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(os.environ["IRIS_PORT_HTTP"])), Hello).serve_forever()
END
iris deploy create hello --cpu 0.1 --probe-interval 1s --min-ready 0s --workdir service --wait -- python serve.py
iris deploy show hello
iris deploy routes hello
iris deploy delete hello
iris usage

# The data stays.
iris down
iris up --detach
iris show hello
iris down
"""


def from_the_checkout(place: Path, run: Callable[[str], str]) -> Path:
    """What is tracked, as an archive has it; its `make demo` prints a result."""
    for path in tracked():
        (place / "iris" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, place / "iris" / path)
    said = run(f"cd iris && make venv PYTHON='{base_python()}' && make demo")
    assert "the" in said
    return place / "iris" / ".venv" / "bin"


def from_the_wheel(place: Path, run: Callable[[str], str]) -> Path:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", place / "dist"]
    subprocess.run([*build, ROOT], check=True, capture_output=True)
    [wheel] = (place / "dist").glob("iris_control_plane-*.whl")
    run(f"'{base_python()}' -m venv own && own/bin/pip install -q '{wheel}[local]'")
    return place / "own" / "bin"


def base_python() -> str:
    return os.path.realpath(sys.executable)


@pytest.mark.parametrize("installed", [from_the_checkout, from_the_wheel])
def test_the_first_hour_goes_as_its_pages_say(
    tmp_path: Path, installed: Callable[[Path, Callable[[str], str]], Path]
):
    home = tmp_path / "home of Zoë"
    home.mkdir()
    environ = {
        **environment(),
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "IRIS_CLUSTER_HTTP": "127.0.0.1:0",
    }

    def run(script: str, seconds: int = INSTALL_S) -> str:
        done = subprocess.run(
            ["sh", "-ec", script],
            cwd=home,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    programs = installed(home, run)
    environ["PATH"] = f"{programs}:{environ['PATH']}"
    try:
        said = run(HOUR, HOUR_S)
    finally:
        subprocess.run([programs / "iris", "down"], env=environ, capture_output=True, check=False)

    for index in range(3):
        assert f"hello from task {index}" in said
    assert "it broke" in said
    assert "[0, 1, 4, 9, 16]\n144\n" in said
    assert re.findall(r"^\d by 3 is \d$", said, re.MULTILINE) == [
        f"{number} by 3 is {3 * number}" for number in range(4)
    ]
    assert "ready" in said
    assert re.search(r"^name +/hello$", said.rpartition("is down")[0], re.MULTILINE)
