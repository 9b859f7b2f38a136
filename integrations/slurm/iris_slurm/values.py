"""Reads the values of Slurm's options: durations, moments, sizes, ranges. Pure; raises
`NotHonoured`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta


class NotHonoured(Exception):
    """A directive, an option or a value that is not honoured; the text names it and says why."""


_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[KMGT]?)B?\Z", re.IGNORECASE)
_CLOCK = re.compile(r"(\d+-)?\d+(:\d+){0,2}\Z")
_FROM_NOW = re.compile(
    r"now(?:(?P<sign>[+-])(?P<number>\d+)(?P<unit>second|minute|hour|day|week)?s?)?\Z"
)
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2})?\Z")
_DAYS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


def read_minutes(text: str) -> int | None:
    """Seconds, of ``90``, ``90:00``, ``1:30:00``, ``1-2``, ``1-2:30`` or ``1-2:30:00``; None: no
    limit.
    """
    if text.lower() in ("0", "infinite", "unlimited"):
        return None
    if not _CLOCK.match(text):
        raise NotHonoured(
            f"--time={text}: not a time; write minutes, hours:minutes:seconds or days-hours:minutes:seconds"
        )
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return int(days) * 86_400 + hours * 3600 + minutes * 60 + seconds
    if len(parts) == 3:
        return parts[0] * 3600 + parts[1] * 60 + parts[2]
    return parts[0] * 60 + sum(parts[1:])


def read_bytes(option: str, text: str) -> int:
    """Bytes; a bare number is MiB, K, M, G and T are powers of 1024."""
    match = _SIZE.match(text)
    if not match:
        raise NotHonoured(f"{option}={text}: not a size; write for example 512M or 4G")
    power = "KMGT".index(match["unit"].upper() or "M") + 1
    return int(float(match["number"]) * 1024**power)


def read_count(option: str, text: str) -> int:
    """A whole number above 0."""
    if not text.isdigit() or int(text) < 1:
        raise NotHonoured(f"{option}={text}: not a whole number above 0")
    return int(text)


def read_nodes(text: str) -> int:
    """A number of hosts: ``2``, or ``2-2``."""
    least, dash, most = text.partition("-")
    if dash and least != most:
        raise NotHonoured(
            f"--nodes={text}: a job has a fixed number of hosts; write --nodes={least}"
        )
    return read_count("--nodes", least)


def read_gpus(option: str, text: str) -> tuple[str, int]:
    """Kind and number of GPUs, of ``4``, ``h100:4`` or ``h100``; an empty kind: any."""
    kind, _, count = text.rpartition(":")
    if count.isdigit():
        return kind, read_count(option, count)
    if kind:
        raise NotHonoured(f"{option}={text}: not a number of GPUs; write for example 4 or h100:4")
    return count, 1


def read_begin(text: str, now: datetime) -> str:
    """``now+8hours``, ``22:00`` or ``2026-03-01T22:00:00`` as RFC 3339; empty: at once. A clock time
    that has passed is tomorrow's.
    """
    if text == "now":
        return ""
    moment = read_moment("--begin", text, now)
    if _TIME_OF_DAY.match(text) and moment.astimezone(UTC) <= now.astimezone(UTC):
        moment += timedelta(days=1)  # by the clock
    return moment.isoformat()


def read_moment(option: str, text: str, now: datetime) -> datetime:
    """``now``, ``now-2days``, ``22:00`` of today, ``2026-03-01`` or ``2026-03-01T22:00:00``, in the
    zone of ``now`` with the offset that it has at that time.
    """
    if match := _FROM_NOW.match(text):
        seconds = int(match["number"] or 0) * _DAYS[match["unit"] or "second"]
        shift = timedelta(seconds=-seconds if match["sign"] == "-" else seconds)
        return (now.astimezone(UTC) + shift).astimezone(now.tzinfo)
    try:
        if _TIME_OF_DAY.match(text):
            clock = datetime.strptime(text, "%H:%M:%S" if text.count(":") == 2 else "%H:%M").time()  # noqa: DTZ007
            return datetime.combine(now.date(), clock, now.tzinfo)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise NotHonoured(
            f"{option}={text}: write now+8hours, 22:00, 2026-03-01 or 2026-03-01T22:00:00"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)


def read_signal(text: str) -> tuple[str, int, bool]:
    """The name of ``[B:]SIGNAL[@SECONDS]``, the seconds, and whether it is for the script alone."""
    if text.startswith("R"):
        raise NotHonoured(f"--signal={text}: there are no reservations; leave out R")
    alone, name = text.startswith("B:"), text.removeprefix("B:")
    name, _, seconds = name.partition("@")
    if not name or not (seconds or "60").isdigit():
        raise NotHonoured(f"--signal={text}: write for example USR1@90 or B:USR1@90")
    return name.removeprefix("SIG"), int(seconds or 60), alone


_JOB_DIGITS = 10
"""Of a job's number, at most; that of a task of an array has more (`numbers`)."""
_WORDS = {
    "afterok": "ok",
    "afterany": "any",
    "afternotok": "notok",
    "after": "start",
    "aftercorr": "ok",
}


def read_dependencies(text: str) -> tuple[list[str], bool, bool]:
    """The jobs of ``afterok:12:13,afterany:14`` as ``j12:ok``, whether each task waits for its
    counterpart, and whether ``singleton`` is among them.
    """
    if "?" in text:
        raise NotHonoured(
            f"--dependency={text}: a job waits for all of them (,), not for one of them (?)"
        )
    parts = [part.split(":") for part in text.split(",")]
    kinds = {kind for kind, *_ in parts}
    if unknown := kinds - {*_WORDS, "singleton"}:
        raise NotHonoured(
            f"--dependency={text}: {min(unknown)} is not known; use {', '.join(_WORDS)}, singleton"
        )
    if "aftercorr" in kinds and kinds - {"aftercorr", "singleton"}:
        raise NotHonoured(
            f"--dependency={text}: aftercorr is for all jobs that are waited for, or for none"
        )
    jobs = [(kind, job) for kind, *found in parts for job in found]
    if wrong := [job for _, job in jobs if not job.isdigit()]:
        raise NotHonoured(
            f"--dependency={text}: {wrong[0]} is not the number of a job; a delay or a single task cannot be"
        )
    if any(len(job) > _JOB_DIGITS for _, job in jobs):
        raise NotHonoured(
            f"--dependency={text}: a job waits for a whole array and not for a task of it; write "
            "$SLURM_ARRAY_JOB_ID"
        )
    if any(kind != "singleton" and not found for kind, *found in parts):
        raise NotHonoured(f"--dependency={text}: it names no job")
    return (
        [f"j{job}:{_WORDS[kind]}" for kind, job in jobs],
        "aftercorr" in kinds,
        "singleton" in kinds,
    )
