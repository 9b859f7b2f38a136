"""Commands as they stand in a page: its blocks, and the command lines of `iris` in blocks, tables and sentences.

A sentence that ends in a colon, as "On m1:", states where the commands of the block below it run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

_SHELLS = ("", "sh", "console")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HERE = re.compile(r"<<'(\w+)'\n.*?^\1$", re.MULTILINE | re.DOTALL)
_WHERE = re.compile(r"(?:^|\. )([^.\n]*[^.]*):\s*\Z")
_CODE = re.compile(r"`(iris [^`]+)`")
_NOT_FIRST = re.compile(r"\w+=.*|sudo|exec|nohup|setsid|timeout|\d+[sm]?|--")


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Attributes:
        where: the end of the sentence before it, without its colon; empty when there is none.
        language: what its fence says.
    """

    where: str
    language: str
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
        said = _WHERE.search(" ".join(text[: match.start()].rpartition("\n\n")[0].rpartition("\n\n")[2].split()))
        found.append(Block(said[1] if said else "", match[1], match[2]))
    return found


def commands_of(script: str) -> Iterator[list[str]]:
    """The words after `iris` of each command line in a shell script. Raises ValueError for unbalanced quotes."""
    for line in _HERE.sub("", script).replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        yield from _of_line(list(words))


def _of_line(words: list[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for word in [*words, ";"]:
        if not set(word) <= set("();<>|&"):
            command.append(word)
            continue
        if word.startswith(">") and command and command[-1].isdigit():
            command.pop()
        while command and _NOT_FIRST.fullmatch(command[0]):
            command.pop(0)
        if command and (command[0] == "iris" or command[0].endswith("/bin/iris")):
            yield command[1:]
        command = []


def command_lines(page: Path) -> Iterator[list[str]]:
    """Every command line of `iris` in a page's blocks and in code of its tables and sentences, without `iris`.

    ``[--events]`` in a sentence is optional and ``a|b`` a choice: each choice is a line, with what is optional.
    """
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        if block.language in _SHELLS:
            yield from commands_of(block.script)
    for code in _CODE.findall(_BLOCK.sub("", text).replace("\n", " ")):
        plain = re.sub(r"\[([^]|]*)[^]]*\]", r"\1", code.replace("\\|", "|"))
        for words in commands_of(re.sub(r"(?<=\w)\|(?=\w)", "\0", plain)):
            yield from map(list, product(*(word.split("\0") for word in words)))
