"""The private parts of nats-py that `client` replaces or calls are unchanged."""

import hashlib
import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from nats.aio.client import Client

ROOT = Path(__file__).parents[3]

WRITTEN_FOR = {
    "_connect_to_server": "1356d992325fde9f",
    "_flush_pending": "317c8d7ef54b90b7",
    "_process_connect_init": "e1ed2da075c82ab0",
    "_process_info": "ecca7bb931308fff",
    "_process_pong": "ee4c4d01a16de074",
    "_send_command": "ed57e8e86389cf94",
    "_send_ping": "d57b2f820443afb4",
}
"""Each method's source text, as the start of its SHA-256."""


@pytest.mark.parametrize("name", WRITTEN_FOR)
def test_a_method_that_is_replaced_or_relied_on_is_unchanged(name):
    found = hashlib.sha256(inspect.getsource(getattr(Client, name)).encode()).hexdigest()[:16]
    assert found == WRITTEN_FOR[name], (
        f"nats-py {version('nats-py')} changed Client.{name}: read it, correct iris_bus/connection/client.py, "
        f"then write {found} here"
    )


def test_a_release_of_nats_py_that_nobody_has_looked_at_is_not_installed():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    needed = {one for extra in extras.values() for one in extra if one.startswith("nats-py")}
    series = ".".join(version("nats-py").split(".")[:2])
    assert needed == {f"nats-py>={series},<{series[0]}.{int(series[2:]) + 1}"}
