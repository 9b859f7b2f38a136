"""Command lines in this process."""

import pytest

from iris.cli import main


@pytest.fixture
def iris(tmp_path, monkeypatch, capfd):
    """Run one command line; its exit code, stdout and stderr."""
    for name in ("IRIS_URL", "IRIS_GATEWAY_URL", "IRIS_TOKEN", "IRIS_JOB", "IRIS_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("IRIS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(*words):
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return run
