"""docs/gangs.md is correct: the variables of a member, and the script of the example."""

import inspect
import re

from drawings.sdk import VARIABLES
from iris_core.messages.state_worker import Gang
from iris_worker import environment
from tests.house.repository import ROOT

PAGE = (ROOT / "docs/gangs.md").read_text(encoding="utf-8")


def test_the_page_names_every_variable_that_only_gangs_get():
    told = environment.gang_words(Gang(1, ("a", "b")), 0, "hosts")
    rows = "".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    assert told.keys() - set(re.findall(r"`(\w+)`", rows)) == set()


def test_a_page_names_each_variable_that_a_task_gets():
    set_by_us = re.findall(r'"(IRIS_[A-Z_]+)"', inspect.getsource(environment))
    assert [name for name in set_by_us if name not in VARIABLES and f"`{name}`" not in PAGE] == []


def test_the_page_names_the_ports_a_coordinator_may_have():
    first, last = environment.COORDINATOR_PORTS[0], environment.COORDINATOR_PORTS[-1]
    assert re.search(rf"The port is from {first} to\s{last}", PAGE)


def test_the_page_shows_the_script_of_the_example():
    script = (ROOT / "examples/ray/node.sh").read_text(encoding="utf-8")
    shown = re.search(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    assert shown
    assert script.endswith(shown[1])
