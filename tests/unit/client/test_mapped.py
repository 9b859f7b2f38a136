"""The task's side of `Client.map`: what its script may not do while it is only read for what it defines."""

import sys

import pytest

from iris_gateway.client.mapped import MAIN, load_main, refuse_while_loading
from iris_gateway.client.problems import BadAsk

UNGUARDED = """
from iris import Client

def double(number):
    return 2 * number

CALL
"""
CLIENT = 'Client("http://127.0.0.1:1")'


@pytest.fixture(autouse=True)
def inside_a_task(monkeypatch, tmp_path):
    monkeypatch.setenv("IRIS_JOB", "/mapping")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", None)


@pytest.mark.parametrize("call", [f"{CLIENT}.map(double, [1, 2, 3])", f"{CLIENT}.run(['true'])"])
def test_a_script_without_a_guard_does_not_submit_itself_again(tmp_path, call):
    (tmp_path / MAIN).write_text(UNGUARDED.replace("CALL", call))
    with pytest.raises(BadAsk, match="__name__"):
        load_main()


def test_the_function_itself_may_submit_jobs(tmp_path):
    (tmp_path / MAIN).write_text(UNGUARDED.replace("CALL", ""))
    load_main()
    refuse_while_loading()
