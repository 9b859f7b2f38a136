"""``python -m iris_proxy``: the proxy as a process."""

from iris_proxy.service import main
from iris_proxy.settings import ProxySettings
from iris_service.run import run_service

run_service(
    "proxy", ProxySettings, main, flags={"workers": "processes that serve the address together"}
)
