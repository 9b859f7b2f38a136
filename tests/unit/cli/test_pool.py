"""`iris pool`: what is sent, what is printed, and how mistakes are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.answers import Answers, Asked, Said, answering

SPEC: dict[str, Any] = {
    "name": "cpu",
    "provider": "process",
    "options": {"boot_s": 1, "seed": 7},
    "hosts": 1,
    "resources": {"cpu_millis": 2000, "memory_bytes": 4 << 30},
    "attributes": {"zone": "eu-1"},
    "capacity": "spot",
    "min": 0,
    "max": 4,
    "buffer": 1,
    "priority": 100,
    "price": 0.5,
    "idle_s": 600.0,
    "boot_timeout_s": 900.0,
    "create_rate": 10,
    "delete_rate": 10,
    "reservation": None,
    "only": "any",
    "paused": False,
}
POOL: dict[str, Any] = {
    **SPEC,
    "state": "exhausted",
    "reason": "no capacity in eu-1",
    "until": None,
    "slices": {"requested": 1, "creating": 1, "ready": 2, "draining": 0, "deleting": 1},
    "idle": 1,
    "need": 3,
    "boot_p50_s": 170.0,
    "boot_p90_s": 240.0,
    "cost_per_hour": 1.5,
    "warnings": [],
    "version": 3,
    "by": None,
    "removing": False,
}
SLICE: dict[str, Any] = {
    "id": "s17",
    "name": "cpu-0",
    "pool": "cpu",
    "status": "creating",
    "since": None,
    "cause": "accepted",
    "detail": "booting",
    "hosts": [
        {"name": "cpu-0-0", "state": "mismatch", "differs": ["cpu_millis 1000, not 2000"]},
        {"name": "cpu-0-1", "state": "missing", "differs": []},
    ],
    "requested_at": None,
    "ready_at": None,
    "idle_since": None,
    "deadline_at": None,
    "cost": 0.25,
    "outdated": True,
    "overdue": False,
    "steps": [],
}
CHANGE: dict[str, Any] = {
    "at": None,
    "slice": "cpu-0",
    "id": "s17",
    "from": "requested",
    "to": "creating",
    "cause": "accepted",
    "detail": "booting",
    "by": None,
}
REFUSED = {
    "title": "Invalid",
    "code": "invalid",
    "detail": "2 mistakes",
    "errors": [
        {"pointer": "/min", "code": "out_of_range", "message": "min 9 is more than max 4"},
        {"pointer": "/options/speed", "code": "unknown_field", "message": "is no option"},
    ],
}


def page(*items: dict[str, Any]) -> Said:
    return Said(200, {"items": items, "next_cursor": None})


@pytest.fixture
def gateway() -> Iterator[Answers]:
    def answer(asked: Asked) -> Said:
        path = asked.path.partition("?")[0]
        if path.endswith("/history"):
            return page(CHANGE)
        if path == "/v1/fleet/slices":
            return page(SLICE)
        if path == "/v1/pools":
            return page(POOL)
        if path == "/v1/pools:plan":
            return Said(200, {"create": 2, "delete": 1, "tasks": 5, "left": 1})
        if path.startswith("/v1/fleet/slices/"):
            return Said(202, {**SLICE, "status": "draining"})
        if path == "/v1/pools/new" and asked.method == "GET":
            return Said(404, {"code": "not_found", "detail": "there is no pool new"})
        if asked.method == "PUT":
            if asked.json.get("min", 0) > asked.json.get("max", 0):
                return Said(422, REFUSED)
            made = path == "/v1/pools/new"
            return Said(
                201 if made else 200,
                {**POOL, **asked.json, "version": 1 if made else 4, "reason": "", "state": "ok"}
                | {"warnings": ["slots 0 to 3 have no keys"]},
            )
        if asked.method == "DELETE":
            gone = Said(200, {"name": "cpu", "state": "removed"})
            return Said(202, {**POOL, "removing": True}) if "drain" in asked.path else gone
        return Said(200, POOL)

    with answering(answer) as answers:
        yield answers


def last(gateway: Answers, method: str) -> Asked:
    return next(one for one in reversed(gateway.requests) if one.method == method)


def test_pools_are_listed_with_what_hinders_them(iris: Any, gateway: Answers) -> None:
    code, out, _ = iris("pool", "ls", "--url", gateway.url)
    heading, row = out.splitlines()
    assert code == 0
    assert heading.split() == [
        *("NAME", "STATE", "READY", "COMING", "LEAVING", "IDLE", "MIN", "MAX", "NEED"),
        *("COST/H", "BOOT", "PROVIDER", "DETAIL"),
    ]
    assert row.split(maxsplit=12) == [
        *("cpu", "exhausted", "2", "2", "1", "1", "0", "4", "3", "1.5", "2m50s", "process"),
        "no capacity in eu-1",
    ]


def test_list_is_another_word_for_ls(iris: Any, gateway: Answers) -> None:
    assert iris("pool", "list", "-o", "name", "--url", gateway.url)[:2] == (0, "cpu\n")


def test_a_pool_is_shown_with_its_slices(iris: Any, gateway: Answers) -> None:
    code, out, _ = iris("pool", "show", "cpu", "--url", gateway.url)
    assert code == 0
    assert "2m50s (p50), 4m (p90); at most 15m" in out
    assert "1 requested, 1 creating, 2 ready, 1 deleting; 0 to 4, 1 in reserve" in out
    assert "cpu-0-0 has cpu_millis 1000, not 2000; outdated" in out
    assert "1 mismatch, 1 missing" in out


def test_only_the_given_options_of_a_pool_change(iris: Any, gateway: Answers) -> None:
    code, _, err = iris(
        *("pool", "set", "cpu", "--max", 8, "--option", "boot_s=", "--option", "seed=8"),
        *("--url", gateway.url),
    )
    assert (code, err.splitlines()[0]) == (0, "cpu is set: 0 to 8 slices of process")
    assert "slots 0 to 3 have no keys" in err
    put = last(gateway, "PUT")
    present = {key: value for key, value in SPEC.items() if value is not None}
    assert put.json == {**present, "max": 8, "options": {"seed": 8}}
    assert put.headers["If-Match"] == '"3"'


def test_a_new_pool_has_what_is_given(iris: Any, gateway: Answers) -> None:
    code, _, err = iris(
        *("pool", "set", "new", "--provider", "process", "--max", 2, "--cpu", "1"),
        *("--attribute", "rack=7", "--url", gateway.url),
    )
    put = last(gateway, "PUT")
    assert (code, err.splitlines()[0]) == (0, "new is made: 0 to 2 slices of process")
    assert put.json == {
        "name": "new",
        "provider": "process",
        "max": 2,
        "resources": {"cpu_millis": 1000},
        "attributes": {"rack": 7},
    }
    assert "If-Match" not in put.headers


def test_refusals_name_options(iris: Any, gateway: Answers) -> None:
    code, _, err = iris("pool", "set", "cpu", "--min", 9, "--url", gateway.url)
    assert code == 2
    assert "--min: min 9 is more than max 4" in err
    assert "--option: is no option" in err


def test_a_file_replaces_the_whole_pool(iris: Any, gateway: Answers, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        'name = "cpu"\nprovider = "process"\nmax = 2\nresources = {cpu_millis = 1000}\n'
    )
    assert iris("pool", "set", file, "--url", gateway.url)[0] == 0
    put = last(gateway, "PUT")
    assert put.json == {
        "name": "cpu",
        "provider": "process",
        "max": 2,
        "resources": {"cpu_millis": 1000},
    }


def test_refusals_of_a_file_name_its_fields(iris: Any, gateway: Answers, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps({**SPEC, "min": 9}))
    code, _, err = iris("pool", "set", file, "--url", gateway.url)
    assert code == 2
    assert "/min: min 9 is more than max 4" in err


def test_what_show_prints_can_be_set_again(iris: Any, gateway: Answers, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(iris("pool", "show", "cpu", "-o", "json", "--url", gateway.url)[1])
    code, _, err = iris("pool", "set", file, "--url", gateway.url)
    assert code == 0
    assert last(gateway, "PUT").json.keys() == SPEC.keys() - {"reservation"}
    assert "left out, as no part of a specification: state, reason, until" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cpu",), "give at least one option"),
        (("cpu.toml", "--max", 3, "--option", "a=b"), "leave out --max, --option"),
        (("nowhere.toml",), "No such file"),
        (("cpu", "--option", "fast"), "'fast' is not KEY=VALUE"),
        (("cpu", "--idle", "soon"), "idle: "),
        (("cpu", "--price", "nan"), "price is not a finite number"),
        (("cpu", "--capacity", "free"), "'free' is not one of"),
        (("cpu", "--only", "gpu"), "'gpu' is not one of"),
        (("cpu", "--max", "many"), "'many' is not a valid integer"),
        (("./cpu", "--max", "1"), "neither the name of a pool"),
        (("CPU", "--max", "1"), "neither the name of a pool"),
    ],
)
def test_mistakes_of_a_command_line_are_told(
    iris: Any, gateway: Answers, words: tuple[Any, ...], said: str
) -> None:
    code, _, err = iris("pool", "set", *words, "--url", gateway.url)
    assert code != 0
    assert said in err
    assert [one for one in gateway.requests if one.method == "PUT"] == []


def test_a_plan_says_what_a_pool_would_do(iris: Any, gateway: Answers) -> None:
    code, out, _ = iris("pool", "plan", "cpu", "--max", 9, "--url", gateway.url)
    assert (code, out) == (
        0,
        "cpu would make 2 slices for 5 waiting tasks and give back 1 slice; 1 task would be left over\n",
    )
    assert last(gateway, "POST").json["max"] == 9


def test_a_pool_is_paused_resumed_and_removed(iris: Any, gateway: Answers) -> None:
    reason = ("--reason", "repairs", "--url", gateway.url)
    assert iris("pool", "pause", "cpu", *reason)[2] == "cpu is paused\n"
    assert last(gateway, "POST").path == "/v1/pools/cpu/pause"
    assert last(gateway, "POST").json == {"reason": "repairs"}
    assert iris("pool", "resume", "cpu", *reason)[2] == "cpu is resumed\n"
    assert last(gateway, "POST").path == "/v1/pools/cpu/resume"
    assert iris("pool", "rm", "cpu", "--url", gateway.url)[2] == "cpu is removed\n"
    assert (
        iris("pool", "rm", "cpu", "--drain", "--url", gateway.url)[2]
        == "cpu goes with its last slice\n"
    )
    assert last(gateway, "DELETE").path == "/v1/pools/cpu?drain=true"


def test_a_slice_is_drained_by_a_deadline(iris: Any, gateway: Answers) -> None:
    code, _, err = iris("pool", "drain", "cpu-0", "--deadline", "10m", "--url", gateway.url)
    assert (code, err) == (0, "cpu-0 draining\n")
    assert last(gateway, "POST").json == {"deadline_s": 600.0, "reason": ""}


def test_the_history_of_a_pool_is_a_table(iris: Any, gateway: Answers) -> None:
    code, out, _ = iris("pool", "history", "cpu", "-n", 5, "--url", gateway.url)
    assert code == 0
    assert out.splitlines()[1].split() == [
        *("cpu-0", "s17", "requested", "creating", "accepted;", "booting")
    ]
