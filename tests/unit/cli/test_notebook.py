"""`iris notebook` and `iris port-forward`: what is known before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from iris.cli.commands.control import port_forward
from iris.cli.commands.control.port_forward import named_port, read_port, until_it_runs
from iris.cli.commands.run import notebook
from iris.cli.commands.run.notebook import lacks_jupyter
from iris.client.problems import ExecutionLost


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("80", (None, 80)),
        ("8080:80", (8080, 80)),
        ("web", (None, "web")),
        ("8080:web", (8080, "web")),
    ],
)
def test_a_port_is_a_number_or_a_name_here_and_there(text: str, port: tuple[int | None, int | str]):
    assert read_port(text) == port


@pytest.mark.parametrize("text", ["", "0", "65536", "70000:80", "a:80", "80:", "1:2:3", "-1"])
def test_what_is_no_port_is_refused_with_an_example(text: str):
    with pytest.raises(click.UsageError, match="for example 8080:80"):
        read_port(text)


def test_ports_of_a_task_that_has_ended_are_refused_at_once():
    ended: Any = SimpleNamespace(task=lambda _: SimpleNamespace(state="succeeded"))
    with pytest.raises(click.UsageError, match=r"/a/0 has ended \(succeeded\)"):
        until_it_runs(ended, "/a/0")


def test_a_directory_without_jupyter_is_noticed_before_anything_is_sent(tmp_path: Path):
    assert "must be on the host" in lacks_jupyter(tmp_path)
    assert "its host's Python" in lacks_jupyter(None)
    packages = tmp_path / "requirements.txt"
    packages.write_text("numpy\n")
    assert lacks_jupyter(tmp_path) == f"{packages} names neither jupyterlab nor notebook"
    packages.write_text("numpy\nJupyterLab==4\n")
    assert lacks_jupyter(tmp_path) == ""


def test_a_task_that_ends_while_it_is_read_is_one_that_has_ended(monkeypatch: pytest.MonkeyPatch):
    def lost(*_: object) -> None:
        raise ExecutionLost("the task has ended")

    monkeypatch.setattr(notebook, "RemoteCommand", lost)
    client: Any = SimpleNamespace(task=lambda _: SimpleNamespace(state="failed"))
    assert notebook._served(client, "/a/0") is None


class Killed:
    """A command that was ended before it has printed anything."""

    exit_code = 137

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Killed:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def test_a_port_whose_number_could_not_be_read_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(port_forward, "RemoteCommand", Killed)
    with pytest.raises(ExecutionLost, match="was ended"):
        named_port(SimpleNamespace(), "/a/0", "web")  # type: ignore[arg-type]
