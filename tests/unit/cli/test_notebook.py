"""`iris notebook` and `iris port-forward`: what is known before anything is sent."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from iris.cli.commands.control.port_forward import read_port, until_it_runs
from iris.cli.commands.run.notebook import lacks_jupyter


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
