"""``python -m iris_proxy``: the proxy as a process."""

from iris_bus.run import run_service
from iris_proxy.service import main
from iris_proxy.settings import ProxySettings

run_service("proxy", ProxySettings, main, flags={"workers": "processes that serve the address together"})
