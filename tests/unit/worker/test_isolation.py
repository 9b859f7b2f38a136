"""Which users and which view of the host the settings give to tasks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iris_service.settings import BadSetting
from iris_worker.attempt.slots.isolation import (
    Isolation,
    NoAccount,
    allow_task_users,
    is_mapped,
    isolation,
    read_binds,
    summary,
    visible,
)
from iris_worker.launcher.records.records import Confine, Sandbox
from iris_worker.settings import WorkerSettings
from tests.support import escapes

ROOT = Path(__file__).parents[3]
as_root = pytest.mark.needs("root")


def words(path: str, arguments: tuple[str, ...]) -> list[str]:
    """The options that name a path."""
    return [
        arguments[at - 1]
        for at, word in enumerate(arguments)
        if word == path and arguments[at - 1].startswith("--")
    ]


def test_the_security_page_shows_the_table_that_is_tested():
    assert escapes.table() in (ROOT / "docs/security.md").read_text()


@as_root
def test_each_slot_of_a_worker_of_root_has_a_user_of_its_own():
    held = isolation(WorkerSettings(), ())
    found = [held.sandbox(slot, "ann") for slot in range(3)]
    assert len({one.uid for one in found if one is not None}) == 3
    assert all(one is not None and one.uid and one.uid == one.gid for one in found)


@as_root
def test_a_pool_gives_no_user_twice():
    held = isolation(WorkerSettings(run_as="pool:2000-2001"), ())
    assert [held.sandbox(slot, "ann") for slot in (0, 1)] == [
        Sandbox(2000, 2000, of_pool=True),
        Sandbox(2001, 2001, of_pool=True),
    ]
    with pytest.raises(OSError, match="all 2 users of the pool are taken"):
        held.sandbox(2, "ann")


@pytest.mark.parametrize("run_as", ["pool:9-3", "pool:0-10", "pool:5-9/6", "no-such-account"])
@as_root
def test_users_that_cannot_be_are_refused(run_as: str):
    with pytest.raises(BadSetting, match="run_as"):
        isolation(WorkerSettings(run_as=run_as), ())


@as_root
def test_a_submitter_without_an_account_is_told_so():
    held = isolation(WorkerSettings(run_as="submitter", accounts=("ann=nobody",)), ())
    sandbox = held.sandbox(0, "ann")
    assert sandbox is not None
    assert sandbox.uid == 65534
    with pytest.raises(NoAccount, match="'bob' has no account on this host"):
        held.sandbox(0, "bob")


def test_a_pool_must_be_mapped_by_one_row_of_the_user_namespace():
    rows = "         0     100000      65536\n     70000    200000        100\n"
    assert is_mapped(range(61_184, 65_280), rows)
    assert not is_mapped(range(65_000, 70_010), rows)
    assert not is_mapped(range(1_879_048_192, 1_879_052_288), rows)


def test_an_unconfined_task_has_no_sandbox():
    held = isolation(WorkerSettings(sandbox="off", run_as="worker"), ())
    assert held == Isolation()
    assert held.sandbox(0, "ann") is None


def test_binds_are_paths_of_this_host(tmp_path: Path):
    assert read_binds((f"{tmp_path}", "/usr:ro")) == [
        (str(tmp_path), "--bind"),
        ("/usr", "--ro-bind"),
    ]
    for wrong in ("data", "/no/such/path", "/usr:rw"):
        with pytest.raises(BadSetting, match="binds"):
            read_binds((wrong,))


def test_private_files_are_hidden_where_a_shown_directory_holds_them(tmp_path: Path):
    shown, data = tmp_path / "shown", tmp_path / "shown/data"
    data.mkdir(parents=True)
    seed, outside = shown / "seed", tmp_path / "seed"
    for file in (seed, outside):
        file.touch()
    settings = WorkerSettings(data=str(data), binds=(str(shown),))
    arguments = visible(settings, (str(seed), str(outside)))
    assert words(str(shown), arguments)[-1] == "--bind"
    assert words(str(data), arguments) == ["--tmpfs"]
    assert arguments[-3:] == ("--ro-bind", os.devnull, str(seed))
    assert str(outside) not in arguments


@pytest.mark.parametrize(
    ("held", "trouble", "word"),
    [
        (Isolation(uids=range(5, 9), wanted=Confine(("bwrap",), True)), "", "sandbox"),
        (Isolation(uids=range(5, 9), wanted=Confine(("bwrap",), True)), "no namespaces", "users"),
        (Isolation(wanted=Confine((), True), trouble="bwrap is not installed"), "", "user"),
        (Isolation(), "", "none"),
    ],
)
def test_a_worker_says_what_it_has_and_why_not_more(held: Isolation, trouble: str, word: str):
    found, sentence, sandboxed, _ = summary(held, trouble)
    assert sandboxed is (word == "sandbox")
    assert found == word
    assert (trouble or held.trouble) in sentence


def test_what_keeps_a_host_from_scoping_abstract_sockets_is_said():
    held = Isolation(wanted=Confine(("bwrap",), True, scopes_sockets=True))
    assert summary(held, "").unscoped == ""
    told = summary(held, "", "this kernel has no Landlock")
    assert (told.word, told.unscoped) == ("sandbox", "this kernel has no Landlock")
    assert told.sentence.endswith(
        "they reach each other's abstract sockets: this kernel has no Landlock"
    )
    alone = isolation(WorkerSettings(abstract_sockets="network", bubblewrap="no-such-program"), ())
    assert summary(alone, "").unscoped == "without a sandbox they have no network of their own"


def test_all_directories_that_users_of_tasks_cannot_pass_are_named_at_once(tmp_path: Path):
    home = tmp_path / "a home"
    data = home / "data"
    attempts = data / "worker-0" / "attempts"
    attempts.mkdir(parents=True)
    for closed in (home, data):
        closed.chmod(0o700)

    with pytest.raises(BadSetting) as refused:
        allow_task_users(str(attempts))

    assert f"'{home}', '{data}'; `chmod o+x " in str(refused.value)
