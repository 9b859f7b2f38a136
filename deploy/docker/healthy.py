"""Exits with 0 when this container's service answers 200: at the API's address, else where metrics
are.

`healthy.py [PATH]`; the path is /healthz unless another is named. It imports little, because it is
started again and again.
"""

import os
import sys
from socket import create_connection

path = sys.argv[1] if len(sys.argv) > 1 else "/healthz"
listens = os.environ.get("IRIS_GATEWAY_HTTP") or os.environ["IRIS_RUN_METRICS"]
with create_connection(("127.0.0.1", int(listens.rpartition(":")[2])), 4) as connection:
    connection.sendall(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
    )
    sys.exit(b" 200 " not in connection.makefile("rb").readline())
