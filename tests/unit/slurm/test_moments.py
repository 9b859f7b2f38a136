"""Moments of `--begin` and `sacct -S`, also beyond a change of the clocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from iris_slurm.commands.sacct import overlaps, read_start
from iris_slurm.local_time import LocalZone
from iris_slurm.values import NotHonoured, read_begin


@pytest.fixture
def berlin(monkeypatch) -> Iterator[LocalZone]:
    with monkeypatch.context() as context:
        context.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield LocalZone()
    time.tzset()


@pytest.mark.parametrize(
    ("now", "text", "begins"),
    [
        ("2026-01-10 12:00", "2026-06-15T10:00:00", "2026-06-15 08:00"),
        ("2026-07-10 12:00", "2027-01-15T10:00:00", "2027-01-15 09:00"),
        ("2026-03-28 22:00", "22:30", "2026-03-29 20:30"),
        ("2026-03-28 22:00", "now+8hours", "2026-03-29 06:00"),
        ("2026-10-24 21:00", "now+8hours", "2026-10-25 05:00"),
        ("2026-10-25 00:45", "2:30", "2026-10-26 01:30"),
        ("2026-06-01 12:00", "2026-06-15T10:00:00+00:00", "2026-06-15 10:00"),
    ],
)
def test_a_job_begins_at_the_time_of_its_day(berlin: LocalZone, now: str, text: str, begins: str):
    moment = datetime.fromisoformat(f"{now}+00:00").astimezone(berlin)
    found = datetime.fromisoformat(read_begin(text, moment)).astimezone(UTC)
    assert f"{found:%Y-%m-%d %H:%M}" == begins


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("", "2026-07-09 22:00"),
        ("2026-01-15", "2026-01-14 23:00"),
        ("2026-07-08T10:00", "2026-07-08 08:00"),
        ("10:00", "2026-07-10 08:00"),
        ("now-2days", "2026-07-08 12:00"),
        ("now", "2026-07-10 12:00"),
    ],
)
def test_sacct_starts_at_the_time_of_its_day(berlin: LocalZone, text: str, start: str):
    now = datetime(2026, 7, 10, 12, tzinfo=UTC).astimezone(berlin)
    assert f"{read_start(text, now).astimezone(UTC):%Y-%m-%d %H:%M}" == start


@pytest.mark.parametrize(
    ("submitted", "finished", "listed"),
    [
        (1, 2, False),
        (1, 4, True),
        (1, None, True),
        (4, 5, True),
        (4, None, True),
        (1, 9, True),
        (7, 8, False),
        (7, None, False),
    ],
)
def test_sacct_lists_what_waited_or_ran_in_a_period(submitted, finished, listed):
    """From the third hour to the sixth."""
    moments = [
        hour and datetime(2026, 3, 1, hour, tzinfo=UTC) for hour in (submitted, finished, 3, 6)
    ]
    assert overlaps(*moments) is listed


def test_the_hour_that_is_twice_has_both_offsets(berlin: LocalZone):
    found = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC).astimezone(berlin) for hour in (0, 1)]
    assert [one.isoformat() for one in found] == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:30:00+01:00",
    ]


def test_what_is_no_moment_is_refused(berlin: LocalZone):
    with pytest.raises(NotHonoured, match="--starttime=teatime: write now"):
        read_start("teatime", datetime(2026, 7, 10, 12, tzinfo=berlin))
