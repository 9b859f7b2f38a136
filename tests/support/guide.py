"""Commands as they stand in a page: its blocks, and the command lines of `iris` in blocks, tables
and sentences.

A sentence that ends in a colon, as "On m1:", states where the commands of the block below it run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

_SHELLS = ("", "sh", "console")
_BLOCK = re.compile(r'^```(\w*)(?: title="(.*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_HERE = re.compile(r"<<'(\w+)'\n.*?^\1$", re.MULTILINE | re.DOTALL)
_WHERE = re.compile(r"(?:^|\. )([^.\n]*[^.]*):\s*\Z")
_CODE = re.compile(r"`(iris [^`]+)`")
_BEFORE = re.compile(r"\w+=.*|sudo|exec|--")
"""What stands before the program of a command."""


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Attributes:
        where: the end of the sentence before it, without its colon; empty when there is none.
        language: what its fence says; a test runs the commands of `sh`.
        title: its title; of commands that need a package, "with jax".
    """

    where: str
    language: str
    title: str
    text: str

    @property
    def script(self) -> str:
        """What a shell runs; prompts are left out."""
        return re.sub(r"^\$ ", "", self.text, flags=re.MULTILINE)


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        said = _WHERE.search(
            " ".join(text[: match.start()].rpartition("\n\n")[0].rpartition("\n\n")[2].split())
        )
        found.append(Block(said[1] if said else "", match[1], match[2] or "", match[3]))
    return found


def commands_of(script: str) -> Iterator[list[str]]:
    """The words after `iris` of each command line in a shell script. Raises ValueError for
    unbalanced quotes.
    """
    begun = ""
    for line in _HERE.sub("", script).replace("\\\n", " ").splitlines():
        begun += line
        words = shlex.shlex(begun, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        try:
            yield from _of_line(list(words))
        except ValueError:  # a quotation goes on in the next line
            begun += "\n"
        else:
            begun = ""
    if begun:
        raise ValueError(f"no closing quotation: {begun}")


def _of_line(words: list[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for word in [*words, ";"]:
        if not set(word) <= set("();<>|&"):
            command.append(word)
            continue
        if word.startswith(">") and command and command[-1].isdigit():
            command.pop()
        called = (
            at for at, word in enumerate(command) if word == "iris" or word.endswith("/bin/iris")
        )
        for at in islice(
            (at for at in called if all(map(_BEFORE.fullmatch, command[at - 1 : at]))), 1
        ):
            yield command[at + 1 :]
        command = []


def command_lines(page: Path) -> Iterator[list[str]]:
    """Every command line of `iris` in a page's blocks and in code of its tables and sentences,
    without `iris`.

    ``[--events]`` in a sentence is optional and ``a|b`` a choice: each choice is a line, with what
    is optional.
    """
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        if block.language in _SHELLS:
            yield from commands_of(block.script)
    for code in _CODE.findall(_BLOCK.sub("", text).replace("\n", " ")):
        plain = re.sub(r"\[([^]|]*)[^]]*\]", r"\1", code.replace("\\|", "|"))
        for words in commands_of(re.sub(r"(?<=\w)\|(?=\w)", "\0", plain)):
            yield from map(list, product(*(word.split("\0") for word in words)))
