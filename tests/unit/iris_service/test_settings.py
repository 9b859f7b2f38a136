"""Settings: sources and their order, and refusal of unknown keys."""

from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from iris_service.settings import BadSetting, load


class Check(msgspec.Struct, frozen=True):
    command: tuple[str, ...] = ()
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 30.0


class WorkerSettings(msgspec.Struct, frozen=True):
    id: str = ""
    check: Check = Check()


class StateSettings(msgspec.Struct, frozen=True):
    retry_for_s: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    handlers: tuple[str, ...] = ("place",)
    keep_jobs: int = 1000
    loud: bool = False
    api_token: str = ""


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "iris.toml"
    path.write_text(text)
    return path


def test_without_any_source_the_defaults_stand():
    assert load(None, {}).section("state", StateSettings) == StateSettings()


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path):
    file = toml(tmp_path, "[state]\nretry_for_s = 1\nkeep_jobs = 1\nloud = true\n")
    settings = load(
        file, {"IRIS_STATE_RETRY_FOR_S": "2", "IRIS_STATE_KEEP_JOBS": "2"}, ["state.keep_jobs=3"]
    ).section("state", StateSettings)
    assert (settings.retry_for_s, settings.keep_jobs, settings.loud) == (2.0, 3, True)


def test_text_becomes_what_the_key_needs():
    environ = {
        "IRIS_STATE_LOUD": "true",
        "IRIS_STATE_HANDLERS": "place, start",
        "IRIS_STATE_KEEP_JOBS": "7",
    }
    settings = load(None, environ).section("state", StateSettings)
    assert settings == StateSettings(loud=True, handlers=("place", "start"), keep_jobs=7)


@pytest.mark.parametrize(
    ("text", "environ", "given", "message"),
    [
        (
            "[state]\nretry_fro_s = 1",
            {},
            [],
            r"iris.toml: \[state\] has no key 'retry_fro_s'; did you mean 'retry_for_s'",
        ),
        ("[stat]\nx = 1", {}, [], r"iris.toml: there is no section \[stat\]; did you mean 'state'"),
        ("x = 1", {}, [], "iris.toml: there is no section"),
        ("state = 1", {}, [], "'state' stands outside a section"),
        ("[state", {}, [], "iris.toml: "),
        (
            "",
            {"IRIS_STATE_KEEP": "1"},
            [],
            r"environment IRIS_STATE_KEEP: \[state\] has no key 'keep'; did you mean",
        ),
        (
            "",
            {"IRIS_STATE_KEEP_JOBS": "many"},
            [],
            r"environment IRIS_STATE_KEEP_JOBS: \[state\] keep_jobs: ",
        ),
        (
            "[state]\nretry_for_s = 0",
            {},
            [],
            r"iris.toml: \[state\] retry_for_s: Expected `float` > 0",
        ),
        ("", {}, ["keep_jobs=1"], r"command line: not SECTION.KEY=VALUE"),
        ("", {}, ["state.nothing=1"], r"\[state\] has no key 'nothing'; release .*: take it out"),
    ],
)
def test_a_mistake_is_refused_by_name_and_origin(tmp_path, text, environ, given, message):
    with pytest.raises(BadSetting, match=message):
        load(toml(tmp_path, text), environ, given).section("state", StateSettings)


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_a_number_that_is_not_finite_is_refused(tmp_path, value):
    class Limits(msgspec.Struct):
        weight: float = 1.0

    message = rf"\[state\] weight: Expected a finite number, got {value}$"
    with pytest.raises(BadSetting, match=f"iris.toml: {message}"):
        load(toml(tmp_path, f"[state]\nweight = {value}"), {}).section("state", Limits)
    with pytest.raises(BadSetting, match=f"environment IRIS_STATE_WEIGHT: {message}"):
        load(None, {"IRIS_STATE_WEIGHT": value}).section("state", Limits)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadSetting, match="No such file"):
        load(tmp_path / "iris.toml", {})


def test_a_tasks_environment_configures_no_service_by_mistake():
    class WorkerSettings(msgspec.Struct):
        slots: int = 4

    assert load(None, {"IRIS_WORKER_ID": "w0"}).section("worker", WorkerSettings).slots == 4


def test_the_listing_names_every_origin_and_hides_secrets(tmp_path):
    file = toml(tmp_path, "[state]\nretry_for_s = 1.5\n")
    settings = load(file, {"IRIS_STATE_API_TOKEN": "hush"}, ["state.loud=true"])
    assert settings.show("state", StateSettings).splitlines() == [
        "[state]",
        f"retry_for_s = 1.5  # {file}",
        'handlers = ["place"]  # default',
        "keep_jobs = 1000  # default",
        "loud = true  # command line",
        'api_token = "***"  # environment IRIS_STATE_API_TOKEN',
    ]


def test_a_password_inside_a_url_is_hidden():
    class NatsSettings(msgspec.Struct):
        url: str = "nats://iris:hush@127.0.0.1:4222,nats://iris:hush@other:4222"

    shown = load(None, {}).show("nats", NatsSettings)
    assert "hush" not in shown
    assert "127.0.0.1:4222" in shown


def test_a_table_of_a_section_is_read_from_every_source(tmp_path):
    file = toml(
        tmp_path,
        '[worker]\nid = "w0"\n[worker.check]\ncommand = ["sh", "-c", "a, b"]\ntimeout_s = 1\n',
    )
    settings = load(file, {})
    assert settings.section("worker", WorkerSettings) == WorkerSettings(
        "w0", Check(("sh", "-c", "a, b"), 1.0)
    )
    given = load(file, {"IRIS_WORKER_CHECK_TIMEOUT_S": "2"}, ["worker.check.command=true"])
    assert given.section("worker", WorkerSettings) == WorkerSettings("w0", Check(("true",), 2.0))
    assert given.show("worker", WorkerSettings).split("\n") == [
        "[worker]",
        f'id = "w0"  # {file}',
        'check.command = ["true"]  # command line',
        "check.timeout_s = 2.0  # environment IRIS_WORKER_CHECK_TIMEOUT_S",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "timeot_s = 1",
            r"iris.toml: \[worker\] has no key 'check.timeot_s'; did you mean 'check.timeout_s'",
        ),
        ("timeout_s = 0", r"iris.toml: \[worker\] check.timeout_s: Expected `float` > 0"),
        ("timeout_s = inf", r"iris.toml: \[worker\] check.timeout_s: Expected a finite number"),
    ],
)
def test_a_mistake_in_a_table_is_refused_by_name(tmp_path, text, message):
    with pytest.raises(BadSetting, match=message):
        load(toml(tmp_path, f"[worker.check]\n{text}"), {}).section("worker", WorkerSettings)
