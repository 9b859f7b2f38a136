"""Who is next where several users wait for room."""

from __future__ import annotations

import asyncio

import pytest

from iris_service.fair_turns import FairTurns


class Room:
    """Users who ask, and have their turn until they are told to go."""

    def __init__(self, turns: FairTurns) -> None:
        self.turns = turns
        self.inside: list[str] = []
        self._tasks: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}

    async def ask(self, name: str, size: int = 1) -> None:
        """``name``: a user, and what tells one turn from another, as in ``eve-1``."""
        over = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._stay(name, size, over)), over
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _stay(self, name: str, size: int, over: asyncio.Event) -> None:
        async with self.turns.turn(name.partition("-")[0], size):
            self.inside.append(name)
            await over.wait()
        self.inside.remove(name)

    async def end(self, name: str) -> None:
        task, over = self._tasks.pop(name)
        over.set()
        await task
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def leave(self, name: str) -> None:
        """Be cancelled, wherever it is."""
        task, _ = self._tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)

    async def close(self) -> None:
        for name in list(self._tasks):
            await self.leave(name)


@pytest.fixture
async def room():
    made = Room(FairTurns(4))
    yield made
    await made.close()


async def test_one_user_has_half_of_it_and_another_comes_at_once(room: Room):
    for number in range(6):
        await room.ask(f"eve-{number}")
    assert room.inside == ["eve-0", "eve-1"]
    assert room.turns.has_all("eve")
    await room.ask("ada-0")
    assert room.inside == ["eve-0", "eve-1", "ada-0"]
    assert not room.turns.has_all("ada")


async def test_who_has_least_is_next(room: Room):
    for name in ("eve-0", "eve-1", "bob-0", "bob-1", "eve-2", "eve-3", "bob-2", "ada-0"):
        await room.ask(name)
    await room.end("eve-0")
    assert room.inside == ["eve-1", "bob-0", "bob-1", "ada-0"]
    await room.end("bob-0")
    assert room.inside[-1] in ("eve-2", "bob-2")


async def test_who_is_next_and_needs_more_is_not_overtaken(room: Room):
    await room.ask("eve-0", 2)
    await room.ask("bob-0", 1)
    await room.ask("ada-0", 2)
    await room.ask("bob-1", 1)
    assert room.inside == ["eve-0", "bob-0"]
    await room.end("eve-0")
    assert room.inside == ["bob-0", "ada-0", "bob-1"]


async def test_what_is_larger_than_a_part_takes_all_of_that(room: Room):
    await room.ask("eve-0", 100)
    await room.ask("eve-1")
    await room.ask("ada-0", 100)
    assert room.inside == ["eve-0", "ada-0"]
    await room.end("eve-0")
    assert room.inside == ["ada-0", "eve-1"]


async def test_a_room_of_one_place_is_used_in_turn():
    room = Room(FairTurns(1))
    for name in ("eve-0", "eve-1", "eve-2", "ada-0"):
        await room.ask(name)
    await room.end("eve-0")
    await room.ask("eve-3")
    await room.end("eve-1")
    assert room.inside == ["ada-0"]
    await room.close()


async def test_who_is_cancelled_leaves_the_room_to_others(room: Room):
    for name in ("eve-0", "eve-1", "eve-2", "eve-3", "ada-0", "bob-0", "dan-0"):
        await room.ask(name)
    assert room.inside == ["eve-0", "eve-1", "ada-0", "bob-0"]
    await room.leave("eve-2")
    await room.leave("dan-0")
    await room.leave("bob-0")
    await room.leave("eve-0")
    await room.ask("bob-1")
    assert sorted(name for name in room.inside if name not in ("bob-0", "eve-0")) == [
        "ada-0",
        "bob-1",
        "eve-1",
        "eve-3",
    ]


async def test_a_turn_that_is_given_to_who_is_cancelled_at_that_time_is_given_on():
    turns = FairTurns(1)
    first = turns.turn("eve")
    await first.__aenter__()
    waiting = asyncio.create_task(turns.turn("ada").__aenter__())
    await asyncio.sleep(0)
    await first.__aexit__(None, None, None)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not turns.would_wait("bob")


async def test_many_users_come_and_go_and_nothing_is_kept_of_them():
    turns = FairTurns(3)
    most = 0
    inside = 0

    async def come(user: str) -> None:
        nonlocal most, inside
        async with turns.turn(user):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(come(f"u{number % 7}") for number in range(200)))
    assert most == 3
    assert not turns._held
    assert not turns._lines
