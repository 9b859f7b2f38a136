"""Every command line and every setting in the pages is one that this release accepts."""

import contextlib
import io
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import click
import pytest

from drawings.configuration import SECTIONS, struct_at
from iris.cli.commands.run.run import read_options
from iris.cli.root import root
from iris.client.options.jobs import job_spec
from iris.client.problems import InvalidOption, NotFound, Rejected
from iris_gateway.api import ENDPOINTS
from iris_gateway.http.parameters import path_fields, read_query
from iris_gateway.http.problem import ProblemResponse
from iris_service.run import run_service
from iris_service.settings import BadSetting, keys_of, load
from tests.house.repository import ROOT, texts, tracked
from tests.support.answers import Asked, Said, answering
from tests.support.answers import problem as refused
from tests.support.guide import blocks, command_lines, commands_of

HISTORY = ("docs/adr", "docs/design", "CHANGELOG.md")
"""State what was decided or renamed, not what to type today."""
PAGES = [
    str(path) for path in tracked() if path.suffix == ".md" and not str(path).startswith(HISTORY)
]
TO_FOLLOW = ("docs/quickstart.md", "docs/howto/", "docs/tutorials/")
"""Pages whose blocks a reader runs, all on one cluster."""
EXAMPLES = {"COMMAND": "ls", "SERVICE": "state", "N": "2", "TIME": "1m", "$service": "state"}
"""Values for words that stand for one."""
NAMES = re.compile(r"\bIRIS_[A-Z_]+[A-Z]\b")
"""Variables, and streams."""
OF_SERVICES = {"proxy": {"workers": ""}}
"""Options that only one service has."""


@pytest.fixture(scope="module", autouse=True)
def _commands_do_nothing() -> Iterator[None]:
    """A command line is parsed, and then nothing is done; a job's options are read."""
    reading = [found(name) for name in READING]
    with pytest.MonkeyPatch.context() as patch, answering(judged) as gateway:
        patch.setenv("IRIS_URL", gateway.url)
        for command in commands(root):
            if command not in reading:
                patch.setattr(command, "callback", dict)
        for name in ("run", "plan"):
            patch.setattr(found(name), "callback", described)
        yield


READING = ("ls", "show", "why", "logs", "tree", "events", "usage", "audit")
"""Commands that only read: the lines of pages with them are run, and a gateway that has nothing
judges what they ask for.
"""


def judged(asked: Asked) -> Said:
    """The refusal of a request that the gateway's endpoint does not take; else there is nothing."""
    parts = urlsplit(asked.path)
    for endpoint in ENDPOINTS:
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", endpoint.path)
        match = re.fullmatch(pattern, parts.path)
        if endpoint.method == asked.method and match and endpoint.parameters is not None:
            kind, pairs = endpoint.parameters, parse_qsl(parts.query, keep_blank_values=True)
            try:
                read_query(kind, pairs, path_fields(kind, match.groupdict()))
            except ProblemResponse as problem:
                told = "; ".join(f"{one.pointer} {one.message}" for one in problem.errors)
                return refused(problem.kind.status, problem.code, f"{problem.detail} {told}")
    return refused(404, "not_found", "there is nothing here")


def found(*names: str) -> click.Command:
    command: click.Command = root
    for name in names:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name) or command
    return command


def commands(group: click.Group) -> Iterator[click.Command]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield from commands(command) if isinstance(command, click.Group) else [command]
        if isinstance(command, click.Group) and command.invoke_without_command:
            yield command


def described(**given: object) -> None:
    environ = dict.fromkeys(given["env"], "")  # type: ignore[attr-defined]
    job_spec(given["command"], read_options(given, environ), {})  # type: ignore[arg-type]


@cache
def names() -> set[tuple[str, ...]]:
    """What alone is the name of a command, and not a line to type."""
    top = {(name,) for name in root.list_commands(click.Context(root))}
    below = _below(top)
    return top | below | _below(below)


def _below(groups: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    return {(*name, one) for name in groups for one in getattr(found(*name), "commands", ())}


def mistake(words: list[str]) -> str:
    """What is wrong with a command line; empty when nothing is."""
    words = [EXAMPLES.get(word, word) for word in words]
    if tuple(words) in names():
        return ""
    if words[:1] == ["server"]:
        return mistake_of_service(*words[1:])
    try:
        root.main(words, prog_name="iris", standalone_mode=False)
    except click.BadParameter as error:
        is_the_readers = (
            isinstance(getattr(error.param, "type", None), click.Path)
            and "not exist" in error.message
        )
        return "" if is_the_readers else error.format_message()
    except click.UsageError as error:
        return error.format_message()
    except (InvalidOption, Rejected) as error:
        return str(error)
    except NotFound:
        return ""
    return ""


def mistake_of_service(service: str, *words: str) -> str:
    """The same for `iris server SERVICE`; a file that it reads is the reader's."""
    given = [*re.sub(r"--config [^ ]+ ?", "", " ".join(words)).split(), "--show-config"]
    kind, options = struct_at(SECTIONS[service][0]), OF_SERVICES.get(service, {})
    said = io.StringIO()
    with (
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(said),
        pytest.raises(SystemExit) as ended,
    ):
        run_service(service, kind, main, given, options)
    return said.getvalue() if ended.value.code else ""


async def main(service: object) -> None:
    """No service runs."""


@pytest.mark.parametrize("page", PAGES)
def test_a_command_line_of_a_page_is_accepted(page: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    wrong = [
        f"iris {' '.join(words)}: {said}"
        for words in command_lines(ROOT / page)
        if (said := mistake(words))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("frobnicate", "There is no command 'frobnicate'."),
        ("run --cores 3 -- true", "No such option '--cores'."),
        ("run --memory much -- true", "not a size"),
        ("logs --since noon train", "?since cannot be 'noon'"),
        ("usage --since noon", "?since cannot be 'noon'"),
        ("cancel --reason old", "Missing argument 'JOB|TASK...'."),
        ("server state --set state.tries=3", "[state] has no key 'tries'"),
        ("server proxy --processes 2", "unrecognized arguments: --processes 2"),
    ],
)
def test_a_command_line_that_is_not_accepted_is_noticed(line: str, said: str):
    assert said in mistake(line.split())


def jobs_of(page: str) -> Iterator[str]:
    """The names of jobs and deployments that the blocks of a page make."""
    for block in blocks(ROOT / page):
        for words in commands_of(block.script) if block.language in ("", "sh") else ():
            if words[0] == "run" and "--name" in words:
                yield words[words.index("--name") + 1]
            elif words[:2] == ["deploy", "create"]:
                yield words[2]


def test_pages_that_are_followed_one_after_the_other_name_no_job_twice():
    """A job that still runs or waits keeps its name from the next page."""
    named = Counter(job for page in PAGES if page.startswith(TO_FOLLOW) for job in jobs_of(page))
    assert len(named) > 10
    assert [job for job, times in named.items() if times > 1] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_settings_of_a_page_are_settings(page: str, tmp_path: Path):
    for block in blocks(ROOT / page):
        if block.language == "toml":
            (tmp_path / "iris.toml").write_text(block.text)
            for section in tomllib.loads(block.text):
                load(tmp_path / "iris.toml", {}).section(section, struct_at(SECTIONS[section][0]))


@cache
def variables() -> set[str]:
    """What may stand in a page: names in the code, and every setting as a variable."""
    code = "\n".join(
        text
        for path, text in texts().items()
        if path.parts[0] in ("libs", "services", "examples", "integrations")
    )
    keys = [
        f"{name}_{key}"
        for name, (place, _) in SECTIONS.items()
        for key in keys_of(struct_at(place))
    ]
    return {*NAMES.findall(code)} | {f"IRIS_{key}".upper().replace(".", "_") for key in keys}


@pytest.mark.parametrize("page", PAGES)
def test_a_variable_of_a_page_is_read_or_set_by_iris(page: str):
    assert {
        name
        for name in NAMES.findall((ROOT / page).read_text())
        if not name.startswith("IRIS_PORT_")
    } <= variables()


def test_a_setting_that_is_none_is_noticed(tmp_path: Path):
    (tmp_path / "iris.toml").write_text("[state]\ntries = 3\n")
    with pytest.raises(BadSetting, match="no key 'tries'"):
        load(tmp_path / "iris.toml", {}).section("state", struct_at(SECTIONS["state"][0]))
