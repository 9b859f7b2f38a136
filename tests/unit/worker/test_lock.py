"""A data directory is locked by one worker at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iris_service.lock import DirectoryInUse
from iris_worker.service.service import lock_data
from iris_worker.settings import WorkerSettings


def test_a_second_worker_on_the_same_directory_is_refused_in_a_sentence(tmp_path: Path):
    settings = WorkerSettings(data=str(tmp_path / "worker"))
    held = lock_data(settings)
    with pytest.raises(DirectoryInUse, match=f"another worker runs on {settings.root}"):
        lock_data(settings)
    os.close(held)
    os.close(lock_data(settings))
