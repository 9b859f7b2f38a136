"""Forms of addresses, URLs and paths are judged where settings are read: by a start and by
``--show-config``.
"""

from __future__ import annotations

import msgspec
import pytest

from iris_gateway.settings import GatewaySettings
from iris_proxy.settings import ProxySettings
from iris_service.process_settings import RunSettings
from iris_service.settings import BadSetting, load
from iris_worker.settings import WorkerSettings

KINDS: dict[str, type[msgspec.Struct]] = {
    "run": RunSettings,
    "worker": WorkerSettings,
    "gateway": GatewaySettings,
    "proxy": ProxySettings,
}


@pytest.mark.parametrize(
    "given",
    [
        "run.metrics=x",
        "run.metrics=127.0.0.1:65536",
        "run.otlp_endpoint=foo",
        "run.otlp_endpoint=http://[::1",
        "worker.metadata_url=foo",
        "worker.metadata_url=https://169.254.169.254",
        "worker.metadata_url=http://host:99999",
        "worker.binds=relative",
        "worker.binds=/data:rx",
        "worker.task_ports=80-90",
        "gateway.http=foo",
        "gateway.http=0.0.0.0:80",
        "gateway.proxy_url=serve.example.org",
        "gateway.trusted=10.0.0.1/8",
        "proxy.http=foo",
        "proxy.trusted=foo",
    ],
)
def test_a_form_that_no_start_can_use_is_refused(given: str) -> None:
    section, _, key = given.partition("=")[0].partition(".")
    with pytest.raises(BadSetting, match=rf"^\[{section}\] {key}: "):
        load(None, {}, [given]).show(section, KINDS[section])


@pytest.mark.parametrize(
    "given",
    [
        "run.metrics=:0",
        "run.otlp_endpoint=https://collector:4318/base",
        "worker.metadata_url=http://127.0.0.1:8000",
        "worker.metadata_url=auto",
        "worker.binds=/not-here:ro, /data",
        "worker.task_ports=1024-65535",
        "gateway.proxy_url=https://serve.example.org",
        "gateway.trusted=10.0.0.0/8, ::1",
    ],
)
def test_a_form_is_accepted_whatever_this_machine_has(given: str) -> None:
    section = given.partition(".")[0]
    assert load(None, {}, [given]).show(section, KINDS[section])


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("gateway.oidc_issuer=https://login", "oidc_audience"),
        ("gateway.oidc_keys=/keys.json", "oidc_issuer"),
        ("gateway.oidc_client=iris-cli", "oidc_issuer"),
        ("proxy.oidc_issuer=https://login", "oidc_audience"),
        ("proxy.oidc_audience=iris", "oidc_issuer"),
    ],
)
def test_a_part_of_an_issuer_is_refused_by_the_key_that_is_missing(
    given: str, missing: str
) -> None:
    section = given.partition(".")[0]
    with pytest.raises(BadSetting, match=rf"^\[{section}\] {missing}: Expected a value"):
        load(None, {}, [given]).show(section, KINDS[section])
