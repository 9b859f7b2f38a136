"""Options written into a script: lines ``#IRIS --cpu=8 --memory 4GiB`` among its leading comments.
Flags win.

The script is the command itself, or the first file an interpreter is given (``python train.py``).
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from pathlib import Path

import click

from iris.cli.parsing.command import CliCommand

MARK = "#IRIS"
_LINES = 200
_LINE = 4096
_SCRIPTS = frozenset({".py", ".sh", ".bash", ".pl", ".rb", ".js", ".R", ".jl"})
_INTERPRETERS = ("python", "bash", "sh", "zsh", "dash", "perl", "ruby", "node", "Rscript", "julia")


class ScriptedCommand(CliCommand):
    """A command whose options may also be written in the script it runs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        script = find_script(*command_of(self, ctx, args))
        return super().parse_args(ctx, [*(read_script(script) if script else ()), *args])


def command_of(
    command: click.Command, ctx: click.Context, args: Sequence[str]
) -> tuple[Sequence[str], Path]:
    """The arguments of a command line without options, and its workdir; empty when it is
    invalid.
    """
    try:
        values, _, _ = command.make_parser(ctx).parse_args(list(args))
    except click.UsageError:
        return (), Path()
    words = values.get("command")
    return words if isinstance(words, tuple) else (), Path(values.get("workdir") or "")


def find_script(command: Sequence[str], workdir: Path = Path()) -> Path | None:
    """The script that a command runs, that of its workdir first; None when it runs no file of this
    machine.
    """
    words: Iterable[str] = command[:1]
    if command and Path(command[0]).name.rstrip("0123456789.") in _INTERPRETERS:
        words = (word for word in command[1:] if not word.startswith("-"))
    script = next(iter(words), None)
    places = (workdir / script, Path(script)) if script else ()
    # a program after -c may be too long for a path
    return next((place for place in places if os.path.isfile(place)), None)


def impossible(command: Sequence[str], workdir: Path) -> str:
    """Why the first word of a command is not a program of any host: it is a whole command line, or
    a missing file.
    """
    word = command[0] if command else ""
    if not word or any(
        os.path.lexists(place) for place in (workdir / word, Path(word)) if "\0" not in word
    ):
        return ""
    if len(command) == 1 and len(word.split()) > 1:
        shell = f"sh -c {shlex.quote(word)}"
        return f"{word!r} is one word, and no program is called that; write: {word}, or in a shell: {shell}"
    if word.startswith(("./", "../")):
        return (
            f"there is no {word} here, and a relative path is uploaded only with or below --workdir"
        )
    return ""


def missing_script(command: Sequence[str], workdir: Path) -> str:
    """The file that an interpreter is to run, when it is a relative path and not here; empty
    otherwise.
    """
    if not command or Path(command[0]).name.rstrip("0123456789.") not in _INTERPRETERS:
        return ""
    word = command[1] if len(command) > 1 else ""
    is_file = Path(word).suffix in _SCRIPTS and not word.startswith(("-", "/"))
    return word if is_file and find_script(command, workdir) is None else ""


def to_send(command: Sequence[str]) -> Path | None:
    """The script of a command that tasks cannot find: one with ``#IRIS`` lines, or with a relative
    path.
    """
    script = find_script(command)
    if script is None or not (
        read_script(script) or not (script.is_absolute() or shutil.which(str(script)))
    ):
        return None
    return script


def with_uploaded_script(command: Sequence[str], script: Path) -> tuple[str, ...]:
    """The command that runs a stored script from its directory, with an interpreter when it names
    none.
    """
    at = next(place for place, word in enumerate(command) if Path(word) == script)
    if at:
        return (*command[:at], script.name, *command[at + 1 :])
    return (*interpreter(script, executable=True), f"./{script.name}", *command[1:])


def in_workdir(
    command: Sequence[str], workdir: Path, left_out: Iterable[str] = ()
) -> tuple[str, ...]:
    """The command that runs in ``workdir``: when its first word is a file there and no program, as
    a script.

    ``left_out``: what of it is not sent, as in `Bundle`, and no script of tasks.
    """
    word = command[0] if command else ""
    places = (workdir / word, Path(word))
    script = next(
        (place for place in places if "\0" not in word and is_inside(place, workdir)), None
    )
    if script is None or ("/" not in word and shutil.which(word)):
        return tuple(command)
    name = os.path.relpath(script, workdir)
    if f"{name}/".startswith(tuple(f"{path.rstrip('/')}/" for path in left_out)):
        return tuple(command)
    return (*interpreter(script, executable=os.access(script, os.X_OK)), f"./{name}", *command[1:])


def is_inside(path: Path, directory: Path) -> bool:
    """Whether a path is that of a file below a directory."""
    return (
        path.is_file() and Path(os.path.abspath(directory)) in Path(os.path.abspath(path)).parents
    )


def interpreter(script: Path, *, executable: bool) -> tuple[str, ...]:
    """The words that run a script: none when it can be executed, else those of its ``#!`` line,
    Python or a shell.
    """
    with script.open("rb") as file:
        first = file.readline(_LINE).decode(errors="replace")
    if first.startswith("#!"):
        return () if executable else tuple(first[2:].split())
    if executable and first.startswith("\x7fELF"):
        return ()
    return ("python3",) if script.suffix == ".py" else ("sh",)


def read_script(script: Path) -> list[str]:
    """The options in the script's leading comment lines. Raises UsageError for an invalid line."""
    try:
        with script.open(encoding="utf-8", errors="surrogateescape") as file:
            return [
                option
                for line in marked_lines(islice(file, _LINES))
                for option in split_line(script, line)
            ]
    except OSError:
        return []


def marked_lines(lines: Iterable[str]) -> Iterator[str]:
    """The text after the mark, of lines before the first that is neither empty nor a comment."""
    for line in takewhile(lambda line: not line.strip() or line.lstrip().startswith("#"), lines):
        word, _, rest = line.strip().partition(" ")
        if word == MARK:
            yield rest


def split_line(script: Path, line: str) -> list[str]:
    """The words of one line as a shell reads them; a comment may follow. Only options are
    allowed.
    """
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise click.UsageError(f"{script}: {MARK} {line}: {error}") from None
    if (words and not words[0].startswith("-")) or "--" in words:
        raise click.UsageError(f"{script}: {MARK} {line}: only options may stand here")
    return words
