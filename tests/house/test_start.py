"""`iris --help` imports nothing that only a command needs."""

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
REPORT = """
import sys
print(' '.join(sorted({
    name if name.startswith('iris_service.') else name.split('.')[0]
    for name in sys.modules if name != 'iris_service'
})))
"""


def loaded_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{REPORT}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_the_help_of_the_command_line_loads_no_library_of_a_service():
    code = """
import sys
from iris.cli import main
sys.argv = ["iris", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code
"""
    loaded = loaded_after(code)
    services = {"iris_bus", "iris_nats", "iris_state", "iris_scheduler", "iris_worker"}
    assert loaded & (HEAVY | services) == set()
    assert {name for name in loaded if name.startswith("iris_service")} == {"iris_service.version"}


def test_only_the_proxy_loads_an_http_client_when_it_starts():
    """nats-py would: it is a third of the time that the import of a service takes, and 10 MB of its
    memory.
    """
    services = ("state", "scheduler", "worker", "gateway", "proxy")
    loading = {
        name for name in services if "aiohttp" in loaded_after(f"import iris_{name}.service")
    }
    assert loading == {"proxy"}


def test_the_sdk_is_loaded_when_it_is_asked_for():
    assert "iris_gateway" not in loaded_after("import iris")


def test_the_client_and_the_command_line_need_only_the_base_dependencies():
    code = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(HEAVY | {"sortedcontainers"})}))
import iris, pkgutil, importlib, iris.cli.commands as commands
iris.Client, iris.AsyncClient
for module in pkgutil.walk_packages(commands.__path__, "iris.cli.commands."):
    importlib.import_module(module.name)
"""
    loaded_after(code)


def test_the_sdk_offers_a_client():
    from iris import AsyncClient, Client

    assert (Client.__name__, AsyncClient.__name__) == ("Client", "AsyncClient")


def test_every_error_a_user_of_the_sdk_may_want_to_catch_has_a_name_in_it():
    import iris
    from iris.client import problems

    raised = {
        name
        for name, kind in vars(problems).items()
        if isinstance(kind, type)
        and issubclass(kind, problems.ClientError)
        and name not in ("InvalidOption", "NoGateway")
    }
    assert raised <= set(iris.__all__)
    assert {getattr(iris, name) for name in raised} == {getattr(problems, name) for name in raised}
