"""Files that the user of a service may not read: each setting that names one says so at the start."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from iris_gateway.settings import GatewaySettings
from iris_proxy.settings import ProxySettings
from iris_scheduler.settings import SchedulerSettings
from iris_service.process_settings import NatsSettings, RunSettings
from iris_service.settings import BadSetting, Settings, keys_of, load, read_files
from iris_state.policy import Policy
from iris_worker.settings import WorkerSettings
from tests.support.passable import passable_directory

SECTIONS: dict[str, type[msgspec.Struct]] = {
    "nats": NatsSettings,
    "run": RunSettings,
    "state": Policy,
    "scheduler": SchedulerSettings,
    "worker": WorkerSettings,
    "gateway": GatewaySettings,
    "proxy": ProxySettings,
}
READ = [(section, key) for section, kind in SECTIONS.items() for key in read_files(kind)]
WRITTEN = {("gateway", "port_file"), ("proxy", "port_file"), ("proxy", "discovery_file")}
"""Files that a service makes."""
_NAMES_A_FILE = re.compile(r"(_file|_cert|_key|_ca|_seed|_keys)\Z")
NOBODY = 65534


@contextmanager
def without_rights() -> Iterator[int]:
    """As a user who may read nothing of root's; who is no root stays who that is."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield os.geteuid()
    finally:
        os.seteuid(before)


@pytest.fixture
def forbidden() -> Iterator[Path]:
    with passable_directory() as place:
        file = place / "secret"
        file.write_text("x")
        file.chmod(0)
        yield file


def given(section: str, key: str, file: Path) -> Settings:
    return load(None, {}, [f"{section}.{key}={file}", *OTHERS.get((section, key), [])])


OTHERS = {
    ("gateway", "oidc_keys"): [
        "gateway.oidc_issuer=https://login.example.org",
        "gateway.oidc_audience=iris",
    ],
}
"""What such a setting needs beside it."""


def test_every_setting_that_names_a_file_is_declared_as_read_or_made():
    named = {
        (section, key)
        for section, kind in SECTIONS.items()
        for key in keys_of(kind)
        if _NAMES_A_FILE.search(key)
    }
    assert named == {*READ, *WRITTEN}


@pytest.mark.parametrize(("section", "key"), READ)
def test_a_file_that_may_not_be_read_is_named(section: str, key: str, forbidden: Path):
    settings = given(section, key, forbidden)
    with without_rights() as user, pytest.raises(BadSetting) as refused:
        settings.check_files(section, SECTIONS[section])
    words = str(refused.value)
    assert words.startswith(f"command line: [{section}] {key}: user ")
    assert f"{user}) may not read {forbidden} (Permission denied); let that user" in words


def test_a_directory_that_may_not_be_entered_is_named(forbidden: Path):
    inner = forbidden.parent / "inner"
    inner.mkdir(mode=0o700)
    if os.geteuid() != 0:
        inner.chmod(0o600)
    settings = given("nats", "tls_key", inner / "key.pem")
    with without_rights(), pytest.raises(BadSetting, match=f"may not enter {inner}, so not read"):
        settings.check_files("nats", NatsSettings)


def test_the_file_of_settings_itself_is_named(forbidden: Path):
    with without_rights(), pytest.raises(BadSetting, match=rf"user .* may not read {forbidden} \("):
        load(forbidden, {})


def test_a_file_that_may_be_read_and_an_address_are_no_trouble(tmp_path: Path):
    (tmp_path / "keys").write_text("x")
    for place in (tmp_path / "keys", "https://login.example.org/keys"):
        given("gateway", "oidc_keys", Path(place)).check_files("gateway", GatewaySettings)
