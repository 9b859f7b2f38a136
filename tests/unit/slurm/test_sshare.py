"""`sshare` prints the rows of `GET /v1/share`.

docs/howto/slurm-commands.md#what-the-other-commands-take.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iris import Client
from iris_core.views.projects import ShareView
from iris_slurm.commands.sshare import sshare
from iris_slurm.values import NotHonoured


def row(project: str, user: str | None = None, **facts: Any) -> ShareView:
    nothing = {"weight": 1.0, "weight_part": 1.0, "usage": 0.0, "usage_part": 0.0, "share": 0.0}
    return ShareView(
        **{"step": 0, "running": 0.0, "pending_tasks": 0, **nothing, **facts},
        project=project,
        user=user,
    )


ROWS = [
    row("/", usage=7200.4, usage_part=1.0, share=1.0),
    row("/nlp", weight=3.0, weight_part=0.75, usage=7200.4, usage_part=1.0, share=4 / 3),
    row("/nlp", "ada", weight_part=0.5, usage=7200.4, usage_part=1.0, share=2.0),
    row("/nlp", "bob", weight_part=0.5),
    row("/prod", weight_part=0.25),
]


def printed(capsys: pytest.CaptureFixture[str], rows: list[ShareView], *words: str) -> list[str]:
    """The lines of a client with these rows."""

    def shares(*, project: str | None = None) -> Iterator[ShareView]:
        path = project and f"/{project.strip('/')}"
        yield from (one for one in rows if path is None or f"{one.project}/".startswith(f"{path}/"))

    assert sshare(cast(Client, SimpleNamespace(shares=shares)), list(words)) == 0
    return capsys.readouterr().out.splitlines()


def test_a_row_is_a_project_or_a_user_of_it(capsys: pytest.CaptureFixture[str]):
    assert printed(capsys, ROWS, "-a", "--parsable2") == [
        "Account|User|RawShares|NormShares|RawUsage|EffectvUsage|FairShare",
        "/||1|1.000000|7200|1.000000|0.500000",
        "/nlp||3|0.750000|7200|1.000000|0.396850",
        "/nlp|ada|1|0.500000|7200|1.000000|0.250000",
        "/nlp|bob|1|0.500000|0|0.000000|1.000000",
        "/prod||1|0.250000|0|0.000000|1.000000",
    ]


def test_columns_have_room_for_each_name(capsys: pytest.CaptureFixture[str]):
    long = "/research/" + "nlp" * 10
    lines = printed(capsys, [*ROWS, row(long, "ada-of-nlp-and-vision")])
    assert lines[0].split() == (
        ["Account", "User", "RawShares", "NormShares", "RawUsage", "EffectvUsage", "FairShare"]
    )
    assert lines[-1].split()[:2] == [long, "ada-of-nlp-and-vision"]
    assert len({len(line) for line in lines}) == 1


def test_options_choose_rows_and_fields(capsys: pytest.CaptureFixture[str]):
    def chosen(*words: str) -> list[str]:
        return printed(capsys, ROWS, "-nP", "-o", "account,User,LevelFS", *words)

    assert chosen("-U") == ["/nlp|ada|0.500000", "/nlp|bob|inf"]
    assert chosen("-u", "bob") == ["/||1.000000", "/nlp||0.750000", "/nlp|bob|inf", "/prod||inf"]
    assert chosen("-U", "-A", "nlp,/nlp,prod") == ["/nlp|ada|0.500000", "/nlp|bob|inf"]
    assert printed(capsys, ROWS, "-np", "-A", "prod", "-o", "user,RawUsage") == ["|0|"]
    with pytest.raises(NotHonoured, match="Priority is not known; use account, effectvusage, "):
        chosen("-o", "Account,Priority")
    with pytest.raises(NotHonoured, match="--clusters=other"):
        chosen("-M", "other")


def test_who_has_no_row_is_named(capsys: pytest.CaptureFixture[str]):
    def shares(*, project: str | None = None) -> Iterator[ShareView]:
        yield from ROWS

    client = cast(Client, SimpleNamespace(shares=shares))
    sshare(client, ["-U", "-n", "-u", "eve,ada"])
    out, err = capsys.readouterr()
    assert [line.split()[1] for line in out.splitlines()] == ["ada"]
    assert err.startswith("sshare: warning: no share of eve: ")


def test_while_there_is_no_fair_share_it_says_so(capsys: pytest.CaptureFixture[str]):
    client = cast(Client, SimpleNamespace(shares=lambda **_: iter(())))
    assert sshare(client, ["-a"]) == 0
    out, err = capsys.readouterr()
    assert (out, err.partition(":")[0]) == ("", "sshare")
    assert "there is no fair share: it begins with the second project that has a weight" in err


@pytest.mark.parametrize("fields", ["Account%256", "Account,User"])
def test_who_asks_for_names_of_accounts_is_given_no_list(
    fields: str, capsys: pytest.CaptureFixture[str]
):
    """Snakemake would refuse every account that is not in it, and labels are in none."""

    def shares(**_: Any) -> Iterator[ShareView]:
        raise AssertionError("not asked")

    client = cast(Client, SimpleNamespace(shares=shares))
    assert sshare(client, ["-U", "--format", fields, "--noheader"]) == 0
    out, err = capsys.readouterr()
    assert (out, err.partition(": ")[2].partition(":")[0]) == ("", "there is no list of accounts")


def test_a_name_makes_no_row_and_no_field(capsys: pytest.CaptureFixture[str]):
    [line] = printed(capsys, [row("/", "a|b\nc")], "-nPU", "-o", "User,RawShares")
    assert line == "a\\x7cb\\x0ac|1"
