"""`iris cp`: files of a running task, by `tar` on its host."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from iris.cli.commands.control.exec import task_of
from iris.cli.exit_codes import ExitCode
from iris.cli.follow import note
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import connected, full
from iris.client.client import Client
from iris.client.executions import RemoteCommand
from iris.client.files.extraction import extract
from iris_core.admission.archive_paths import InvalidArchive
from iris_core.views.streams import ExecutionLine


class TaskPath(click.ParamType):  # type: ignore[type-arg]
    """``TASK:PATH``, relative to the task's directory."""

    name = "path"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        task, colon, path = value.partition(":")
        if not colon or not task.strip("/") or not path:
            self.fail(f"{value!r} is not TASK:PATH, for example train/0:checkpoints", param, ctx)
        return full(task), path


@click.command(cls=CliCommand)
@click.argument("source", type=TaskPath(), metavar="TASK|JOB:PATH")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@connected
def cp(client: Client, source: tuple[str, str], directory: Path) -> int:
    """Copy a file or directory of a running task into a directory here.

    Files keep their times and permissions, not their owners. A link that leads out of the directory
    ends the copy.
    """
    task = task_of(client, source[0])
    path = source[1]
    directory.mkdir(parents=True, exist_ok=True)
    where, _, name = path.rstrip("/").rpartition("/")
    command = (
        "tar",
        "-C",
        where or ("/" if path.startswith("/") else "."),
        "-cf",
        "-",
        "--",
        name or ".",
    )
    with RemoteCommand(client, task, command) as remote:
        output = CopiedBytes(remote)
        try:
            extract(io.BufferedReader(output), directory)
            output.drain()
        except InvalidArchive as error:
            output.drain()
            if not remote.exit_code:
                note(f"{task}:{path}: {error}")
                return ExitCode.UNEXPECTED
    if remote.exit_code:
        note(remote.error or f"tar on the task's host ended with exit code {remote.exit_code}")
        return ExitCode.UNEXPECTED
    return ExitCode.SUCCEEDED


class CopiedBytes(io.RawIOBase):
    """The standard output of a command as a file; its standard error is printed as text of others
    is.
    """

    def __init__(self, remote: Iterable[ExecutionLine]) -> None:
        self._pieces = self._read(remote)
        self._rest = b""

    def _read(self, remote: Iterable[ExecutionLine]) -> Iterator[bytes]:
        text = codecs.getincrementaldecoder("utf-8")("replace")
        for line in remote:
            if line.stderr:
                sys.stderr.write(text.decode(line.stderr))
            yield line.stdout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        taken = self._rest[: len(buffer)]
        buffer[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        return len(taken)

    def drain(self) -> None:
        """Read on to the command's end."""
        for _ in self._pieces:
            pass
