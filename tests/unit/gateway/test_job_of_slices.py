"""The page of a job of several slices, of a gang by levels, and of an array."""

from __future__ import annotations

import re
import time

from iris_core.spec.jobs import Coscheduling, Level
from iris_core.spec.resources import Amount, Device, ResourceRequest
from tests.support.example_cluster import Story
from tests.support.gateway import house
from tests.support.large import show


async def test_a_job_of_several_slices_shows_those_that_it_holds():
    story = Story(time.time_ns() // 1_000_000)
    for name in ("slice-a", "slice-b", "slice-c"):
        for number in range(2):
            place = {"tpu-name": name, "tpu-worker-id": number, "tpu-topology": "v4-16"}
            story.host(f"{name}-w{number}", Amount(8000, 1 << 34, 1 << 40, 4), **place)
    gang = Coscheduling("tpu-name", slices=2, within="zone")
    asked = ResourceRequest(1000, 0, 0, Device("tpu", "v4-16", 4))
    two = story.job("/ada/two", 100, replicas=4, resources=asked, coscheduling=gang)
    one = story.job(
        "/ada/one", 90, replicas=2, resources=asked, coscheduling=Coscheduling("tpu-name")
    )
    for index in range(4):
        story.run(two, index, f"slice-{'bc'[index // 2]}-w{index % 2}", 80, None)
    for index in range(2):
        story.run(one, index, f"slice-a-w{index}", 80, None)
    ledger, _ = story.applied()
    async with house() as iris:
        show(iris, ledger)
        text, other = [
            (await iris.http.get(f"/jobs/{number}")).text for number in (f"j{two}", f"j{one}")
        ]
    assert "<dd>2 slices by tpu-name within one zone</dd>" in text
    assert re.findall(r"<b>(slice-\w)</b>", text) == ["slice-b", "slice-c"]
    assert [text.count(f'<span class="faint">slice {number}</span>') for number in range(3)] == [
        2,
        2,
        0,
    ]
    assert "--slices 2" in text
    assert "--within zone" in text
    assert 'id="slices"' not in other


async def test_a_gang_by_levels_shows_where_each_member_is():
    story = Story(time.time_ns() // 1_000_000)
    for name, rack in (("a", "r1"), ("b", "r2")):
        story.host(name, Amount(8000, 1 << 34, 1 << 40, 0), rack=rack, block="b1")
    gang = Coscheduling((Level("rack", "preferred"), Level("block")))
    number = story.job(
        "/ada/near", 100, replicas=2, resources=ResourceRequest(1000), coscheduling=gang
    )
    for index, host in enumerate("ab"):
        story.run(number, index, host, 80, None)
    ledger, _ = story.applied()
    async with house() as iris:
        show(iris, ledger)
        text = (await iris.http.get(f"/jobs/j{number}")).text
    assert "<dd>by rack (preferred), block</dd>" in text
    assert re.findall(r'faint">(rack \w+)</span> <span class="faint">(block \w+)', text) == [
        ("rack r1", "block b1"),
        ("rack r2", "block b1"),
    ]
    assert [one in text for one in ("--group-by rack:preferred", "--group-by block")] == [
        True,
        True,
    ]


async def test_values_of_an_array_are_shown_where_they_are_not_the_indexes():
    story = Story(time.time_ns() // 1_000_000)
    numbers = [
        story.job(f"/ada/{i}", 90 + i, replicas=3, array=array)
        for i, array in enumerate(("1000-1002", "0-2"))
    ]
    numbers.append(story.job("/ada/part", 99, replicas=2, array="0-1,70,80", indexes="2-3"))
    ledger, _ = story.applied()
    async with house() as iris:
        show(iris, ledger)
        texts = [(await iris.http.get(f"/jobs/j{number}")).text for number in numbers]
    assert [re.findall(r"= (\d+)</span>", text) for text in texts] == [
        ["1000", "1001", "1002"],
        [],
        ["70", "80"],
    ]
    assert ["c-task valued" in text for text in texts] == [True, False, True]
