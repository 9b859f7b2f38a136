"""The last discovery this proxy took up, in a file, for a start while the bus is away.

The file may be shared by several proxies. Out of scope: who follows the discovery (`service`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from iris_bus.contract import Entry
from iris_service.listening import replace_file

log = logging.getLogger(__name__)


class LastDiscovery:
    """The whole discovery as JSON: the value and the revision of each deployment.

    Args:
        path: of the file; empty: nothing is kept.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None

    def read(self) -> dict[str, Entry] | None:
        """What was written last, which may be empty; None when there is no file, or one that cannot
        be used.
        """
        if self._path is None:
            return None
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Entry])
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            log.warning("the last discovery cannot be read from %s: %s", self._path, error)
            return None

    def write(self, values: Mapping[str, Entry]) -> None:
        """Replace what is kept; a file that cannot be written changes nothing else."""
        if self._path is None:
            return
        try:
            replace_file(self._path, msgspec.json.encode(values))
        except OSError as error:
            log.warning("the discovery cannot be stored in %s: %s", self._path, error)
