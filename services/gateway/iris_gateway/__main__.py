"""``python -m iris_gateway`` is the gateway's process."""

from iris_gateway.service import start

start()
