"""`iris up` authenticates: its owner needs no configuration, and nobody else who reaches loopback
gets anywhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener, urlopen

import pytest

from iris import Client
from iris.client.http.address import read_token
from iris.client.problems import NotAllowed
from iris_core.spec.serving import TOKEN_COOKIE
from iris_gateway.api import ENDPOINTS
from tests.support.cluster import IRIS, Cluster, cluster_on, environment, until

pytestmark = pytest.mark.integration

PUBLIC = {"GET /healthz", "GET /readyz", "GET /metrics", "GET /v1/meta", "GET /v1/openapi.json"}
SDK = "from iris import Client\nwith Client() as client: print(client.run(['true'], cpu=0.1).wait(60).state)"


class NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def status(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str]]:
    """How a request without a token, or with these headers, is answered: its status and headers."""
    request = Request(
        url,
        b"{}" if method != "GET" else None,
        {"Content-Type": "application/json", **headers},
        method=method,
    )
    try:
        with build_opener(NoRedirect).open(request, timeout=30) as answer:
            return answer.status, dict(answer.headers)
    except HTTPError as refused:
        with refused:
            return refused.code, dict(refused.headers)


def test_without_a_token_loopback_is_told_only_what_is_public(cluster: Cluster):
    answered = set()
    for endpoint in ENDPOINTS:
        path = re.sub(r"{\w+}", "x", endpoint.path)
        if status(cluster.url + path, endpoint.method)[0] != 401:
            answered.add(f"{endpoint.method} {endpoint.path}")
    assert answered == PUBLIC
    code, headers = status(f"{cluster.url}/jobs", accept="text/html")
    assert (code, headers["location"]) == (303, "/login")
    with (
        Client(cluster.url, token="") as nobody,
        pytest.raises(NotAllowed, match=r"set IRIS_TOKEN .*, or IRIS_DATA"),
    ):
        nobody.run(["true"])


@pytest.mark.parametrize("given", ["IRIS_DATA", "IRIS_URL"])
def test_the_command_line_and_the_sdk_of_its_owner_need_no_configuration(
    cluster: Cluster, given: str
):
    """Also when they are given the address, as ``localhost`` too."""
    url = cluster.url.replace("127.0.0.1", "localhost")
    environ = {
        **environment(),
        "IRIS_DATA": str(cluster.data),
        **({"IRIS_URL": url} if given == "IRIS_URL" else {}),
    }
    for command in ([*IRIS, "run", "--cpu", "0.1", "--", "true"], [sys.executable, "-c", SDK]):
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user of this machine may enter."""
    place = Path(tempfile.mkdtemp(prefix="iris-open-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def test_a_directory_without_a_token_gets_one_which_no_other_user_can_read(open_place: Path):
    data = open_place / "data"
    with cluster_on(data, "--workers", "1", "--no-auth") as cluster:
        assert "warning: no authentication" in log_of(cluster)
        with Client(cluster.url, token="") as anybody:
            assert anybody.run(["true"], name="before").wait(60).state == "succeeded"
        assert not (data / "token").exists()
    with cluster_on(data, "--workers", "1") as cluster:
        assert cluster.client.job("/before").state == "succeeded"
        assert cluster.submit("true", name="after").wait(60).state == "succeeded"
        token = data / "token"
        assert [path.stat().st_mode & 0o777 for path in (data, token, data / "tokens")] == [
            0o711 if os.getuid() == 0 else 0o700,  # users of tasks pass it
            0o600,
            0o600,
        ]
        assert read_token(str(token)) not in log_of(cluster)
        data.chmod(0o755)
        if os.getuid() == 0:
            stolen = subprocess.run(
                ["cat", token], user="nobody", extra_groups=[], capture_output=True, check=False
            )
            assert (stolen.returncode, stolen.stdout) == (1, b"")
        signs_in_once(cluster)


def signs_in_once(cluster: Cluster) -> None:
    """The link that `iris up` has printed."""
    [link] = until(
        lambda: re.findall(rf"{cluster.url}/login\?code=\w+(?=\s)", log_of(cluster)),
        "it is printed",
    )
    code, headers = status(link, **{"Sec-Fetch-Site": "none"})
    cookie = headers["set-cookie"].partition(";")[0]
    assert (code, cookie) == (303, f"{TOKEN_COOKIE}={cluster.token}")
    with urlopen(Request(f"{cluster.url}/jobs", headers={"Cookie": cookie})) as page:
        assert page.url == f"{cluster.url}/jobs"
    assert status(link, **{"Sec-Fetch-Site": "none"})[0] == 401


def log_of(cluster: Cluster) -> str:
    """What `iris up` has printed for people."""
    return (cluster.data.parent / f"{cluster.data.name}-up.log").read_text()
