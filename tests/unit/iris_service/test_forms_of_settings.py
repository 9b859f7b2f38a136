"""Forms of addresses, URLs and paths are judged where settings are read: by a start and by ``--show-config``."""

from __future__ import annotations

import msgspec
import pytest

from iris_service.process_settings import RunSettings
from iris_service.settings import BadSetting, load
from iris_worker.settings import WorkerSettings

KINDS: dict[str, type[msgspec.Struct]] = {"run": RunSettings, "worker": WorkerSettings}


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
    ],
)
def test_a_form_is_accepted_whatever_this_machine_has(given: str) -> None:
    section = given.partition(".")[0]
    assert load(None, {}, [given]).show(section, KINDS[section])
