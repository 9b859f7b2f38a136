"""What a type checker has to say of the SDK: nothing, but for the lines that end in a comment that
says so. Read by `tests/integration/test_types.py`; never run.
"""

from __future__ import annotations

import iris


def half(number: int, by: int = 2) -> float:
    return number / by


def join(text: str, number: int) -> str:
    return f"{text}{number}"


def scaled(number: int, *, scale: float) -> float:
    return number * scale


client = iris.Client()

halves: list[float] = client.map(half, [1, 2]).results()
texts: list[str] = client.map(join, ["a"], (n for n in range(3)), cpu=1, chunksize=2).results()
plain: list[int] = client.map(lambda number: number + 1, [1]).results()
scaled_ones: list[float] = client.map(scaled, [1], kwargs={"scale": 2.0}).results()
four: list[int] = client.map(max, [1], [2], [3], [4]).results()
either: list[float | BaseException] = client.map(half, [1], return_exceptions=True).results()
pairs: list[str] = client.starmap(join, [("a", 1)]).results()
one: float = client.map(half, [1])[0].result()

client.map(half, ["a"])  # wrong
client.map(half, [1], [2], [3])  # wrong
client.map(join, [1], ["a"])  # wrong
client.map(half, [1], memory=[1])  # wrong
client.map(half, [1], retry=3)  # wrong
client.map(half, [1]).results()[0].upper()  # wrong
client.map(half, [1])[0].result().upper()  # wrong
client.map(half, [1], return_exceptions=True).results()[0] + 1  # wrong
number: int = client.map(join, ["a"], [1]).results()[0]  # wrong

for future in client.map(half, [1]).as_completed():
    future.result().upper()  # wrong


async def main() -> None:
    async with iris.AsyncClient() as client:
        mapped = await client.map(half, [1])
        found: list[float] = await mapped.results()
        first: float = await mapped[0]
        other: list[str] = await (await client.map(join, ["a"], [1], band="batch")).results()
        print(found, first, other)
        await client.map(half, ["a"])  # wrong
        (await mapped.results())[0].upper()  # wrong
        (await mapped[0]).upper()  # wrong


with iris.Executor() as executor:
    ended: float = executor.submit(half, 3, by=1).result()
    executor.submit(half, "a")  # wrong
    executor.submit(half, 1).result().upper()  # wrong
