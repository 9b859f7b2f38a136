"""`iris notebook` with a real JupyterLab: its pages, a kernel, and the websocket by which that is
used.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import IRIS, Cluster
from tests.support.frameworks import FRAMEWORKS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.needs("jupyterlab"),
]
WITHIN_S = 120

CALCULATE = """
import json, sys, urllib.request, uuid, websocket

address, _, token = sys.argv[1].partition("/lab?token=")
def ask(path, data=None, token=token):
    request = urllib.request.Request(address + path, data=data, headers={"Authorization": f"token {token}"})
    return urllib.request.urlopen(request, timeout=60).read()

print("JupyterLab" in ask("/lab").decode())
try:
    ask("/api/kernels", token="wrong")
except urllib.error.HTTPError as error:
    print(error.code)
kernel = json.loads(ask("/api/kernels", b"{}"))["id"]
line = websocket.create_connection(
    f"{address.replace('http', 'ws', 1)}/api/kernels/{kernel}/channels", header=[f"Authorization: token {token}"],
    timeout=60,
)
content = {"code": "print(6 * 7)", "silent": False, "store_history": False, "allow_stdin": False}
header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": "s", "username": "u"}
message = {"channel": "shell", "header": {**header, "version": "5.3"}, "parent_header": {}, "metadata": {}}
line.send(json.dumps({**message, "content": content}))
while (said := json.loads(line.recv()))["msg_type"] != "stream":
    pass
print(said["content"]["text"].strip())
"""


def test_jupyter_is_used_from_here_and_ends_with_ctrl_c(cluster: Cluster, tmp_path: Path):
    variables = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONPATH": FRAMEWORKS,
        "JUPYTER_PATH": FRAMEWORKS / "share/jupyter",
        "JUPYTER_CONFIG_PATH": FRAMEWORKS / "etc/jupyter",
        "JUPYTERLAB_DIR": FRAMEWORKS / "share/jupyter/lab",
        "HOME": tmp_path,
    }
    given = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
    words = [*IRIS, "notebook", "--name", "jupyter", *given]
    with subprocess.Popen(
        words, env=cluster.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert "/lab?token=" in address
        done = subprocess.run(
            [sys.executable, "-c", CALCULATE, address],
            env={**cluster.environ, "PYTHONPATH": str(FRAMEWORKS)},
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert (done.stdout.split(), done.stderr) == (["True", "403", "42"], "")
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 130
    assert cluster.client.job("jupyter").wait(WITHIN_S).state == "killed"
