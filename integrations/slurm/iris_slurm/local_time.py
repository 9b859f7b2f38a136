"""The time zone of this machine, with its changes of clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo


class LocalZone(tzinfo):
    """That of TZ or of the machine; each moment has the offset of its own day.

    The zone of ``datetime.now().astimezone()`` has the offset of today for all days.
    """

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return _local(dt).utcoffset() if dt is not None else None

    def tzname(self, dt: datetime | None) -> str | None:
        return _local(dt).tzname() if dt is not None else None

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def fromutc(self, dt: datetime) -> datetime:
        """The second of two equal clock times, when the clocks go back, has ``fold``."""
        local = dt.replace(tzinfo=UTC).astimezone()
        first = local.replace(tzinfo=self)
        return first if first.utcoffset() == local.utcoffset() else first.replace(fold=1)


def _local(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None).astimezone()


def local_now() -> datetime:
    return datetime.now(LocalZone())
