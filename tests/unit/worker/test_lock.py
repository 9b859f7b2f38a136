"""A data directory belongs to one worker at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iris_worker.service import InUse, lock
from iris_worker.settings import WorkerSettings


def test_a_second_worker_on_the_same_directory_is_refused_in_a_sentence(tmp_path: Path):
    settings = WorkerSettings(data=str(tmp_path / "worker"))
    held = lock(settings)
    with pytest.raises(InUse, match=f"another worker runs on {settings.root}"):
        lock(settings)
    os.close(held)
    os.close(lock(settings))
