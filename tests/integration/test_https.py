"""HTTPS: gateway and proxy with their own certificate, and behind nginx with the configuration of
deploy/.
"""

from __future__ import annotations

import contextlib
import getpass
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iris_service.certificate import Certificate
from iris_service.child import end_with_parent
from iris_service.settings import BadSetting
from iris_worker.host.host import authority
from tests.house.repository import ROOT
from tests.support.certificates import make_certificate
from tests.support.cluster import Cluster, until
from tests.support.fleet import fleet
from tests.support.nats_config import free_ports

pytestmark = pytest.mark.integration

HEAD = """daemon off; worker_processes 1; pid nginx.pid; error_log error.log;
events { worker_connections 256; }
http { access_log off; client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4;
scgi_temp_path t5; include iris.conf; }
"""


def shown(port: int) -> bytes:
    """The certificate that somebody shows, in DER."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain) as secure,
    ):
        return secure.getpeercert(binary_form=True) or b""


def presented(context: ssl.SSLContext) -> bytes:
    """What a client gets to see of a server with this context, without any socket."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server)
    for side in (client, server) * 3:
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return client.getpeercert(binary_form=True) or b""


def status(url: str, cert: Path) -> int:
    context = ssl.create_default_context(cafile=str(cert))
    try:
        with urllib.request.urlopen(url, timeout=60, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


def test_gateway_and_proxy_speak_tls_and_take_up_a_new_certificate(nats_url: str, tmp_path: Path):
    cert, key = make_certificate(tmp_path)
    [port] = free_ports(1)
    with fleet(nats_url, tmp_path) as services:
        services.add("state", "state")
        gateway = services.begin(
            "gateway", "gateway", f"gateway.tls_cert={cert}", f"gateway.tls_key={key}"
        )
        given = (f"proxy.http=127.0.0.1:{port}", f"proxy.tls_cert={cert}", f"proxy.tls_key={key}")
        services.add("proxy", "proxy", *given)
        until(
            lambda: b"listening on https://127.0.0.1" in gateway.log.read_bytes(),
            "the gateway listens",
        )
        until(
            lambda: status(f"https://localhost:{gateway.port}/readyz", cert) == 200, "it is ready"
        )
        before = shown(gateway.port)
        assert shown(port) == before == ssl.PEM_cert_to_DER_cert(cert.read_text())
        (tmp_path / "new").mkdir()
        for new, old in zip(make_certificate(tmp_path / "new", "new"), (cert, key), strict=True):
            new.replace(old)
        until(
            lambda: before not in (shown(gateway.port), shown(port)),
            "both show the new certificate",
        )
        assert status(f"https://localhost:{gateway.port}/healthz", cert) == 200


def test_a_certificate_that_cannot_be_used_is_refused_or_left_alone(tmp_path: Path):
    cert, key = make_certificate(tmp_path)
    certificate = Certificate("gateway", str(cert), str(key))
    (tmp_path / "other").mkdir()
    other, _ = make_certificate(tmp_path / "other")
    other.replace(cert)  # it does not belong to the key
    before = presented(certificate.context)
    certificate.look()
    assert presented(certificate.context) == before
    with pytest.raises(BadSetting, match=r"\[gateway\] tls_cert"):
        Certificate("gateway", str(cert), str(key))


@contextmanager
def nginx_before(cluster: Cluster, directory: Path) -> Iterator[tuple[str, Path]]:
    """nginx with the file of deploy/, its addresses and certificate put in: its URL and the
    certificate.
    """
    directory.mkdir()
    cert, key = make_certificate(directory)
    [port] = free_ports(1)
    text = (ROOT / "deploy" / "nginx" / "iris.conf").read_text()
    for example, ours in {
        "127.0.0.1:8080": cluster.url.removeprefix("http://"),
        "127.0.0.1:8090": cluster.file["proxy_url"].removeprefix("http://"),
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/iris/tls/cert.pem": str(cert),
        "/etc/iris/tls/key.pem": str(key),
    }.items():
        assert example in text
        text = text.replace(example, ours)
    (directory / "iris.conf").write_text(text)
    (directory / "nginx.conf").write_text(HEAD)
    command = [
        "nginx",
        "-p",
        f"{directory}/",
        "-c",
        str(directory / "nginx.conf"),
        "-g",
        f"user {getpass.getuser()};",
    ]
    serving = subprocess.Popen(command, cwd=directory, preexec_fn=end_with_parent())  # noqa: PLW1509
    try:
        until(lambda: serving.poll() is None and (directory / "nginx.pid").exists(), "nginx serves")
        yield f"https://localhost:{port}", cert
    finally:
        serving.terminate()
        serving.wait(60)


@pytest.mark.needs("nginx")
def test_the_command_line_works_through_nginx(cluster: Cluster, tmp_path: Path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "words").write_bytes(b"through nginx\n" + bytes(3 << 20))
    with nginx_before(cluster, tmp_path / "nginx") as (url, cert):
        environ = {"IRIS_URL": url, "IRIS_TOKEN": cluster.token, "SSL_CERT_FILE": str(cert)}
        done = cluster.iris(
            "run",
            "--name",
            "/encrypted/run",
            "--workdir",
            tmp_path / "work",
            "--",
            "head",
            "-1",
            "words",
            **environ,
        )
        assert (done.code, done.out) == (0, "through nginx\n"), done.err
        assert (
            cluster.iris("show", "/encrypted/run", "-o", "name", **environ).out.strip()
            == "/encrypted/run"
        )
        distrusting = cluster.iris("ls", **{**environ, "SSL_CERT_FILE": "/dev/null"})
        assert distrusting.code == 8
        told = {**environ, "SSL_CERT_FILE": "/dev/null", "IRIS_CA": authority(str(cert))}
        assert cluster.iris("ls", **told).code == 0
        damaged = cluster.iris("ls", **{**told, "IRIS_CA": told["IRIS_CA"][:90]})
        assert (damaged.code, "IRIS_CA is not a certificate" in damaged.err) == (2, True)
