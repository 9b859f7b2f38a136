"""`iris --help` loads nothing that only a command needs."""

import subprocess
import sys

HEAVY = {
    "nats",
    "rich",
    "starlette",
    "uvicorn",
    "httpx",
    "jinja2",
    "numpy",
    "psutil",
    "prometheus_client",
    "opentelemetry",
}
REPORT = "import sys; print(' '.join(sorted({name.split('.')[0] for name in sys.modules})))"


def loaded_after(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", f"{code}\n{REPORT}"], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_help_of_the_command_line_loads_no_library_of_a_service():
    code = """
from click.testing import CliRunner
from iris_gateway.cli import main
assert CliRunner().invoke(main, ["--help"]).exit_code == 0
"""
    assert loaded_after(code) & (HEAVY | {"iris_bus", "iris_state", "iris_scheduler", "iris_worker"}) == set()


def test_the_sdk_is_loaded_when_it_is_asked_for():
    assert "iris_gateway" not in loaded_after("import iris")


def test_the_sdk_offers_a_client():
    from iris import AsyncClient, Client

    assert (Client.__name__, AsyncClient.__name__) == ("Client", "AsyncClient")
