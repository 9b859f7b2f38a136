"""Packages of programs that tests run, which the lock file does not name."""

from pathlib import Path

from tests.house.repository import ROOT

FRAMEWORKS = ROOT / ".frameworks"
"""Where `.ci/run` installs JAX, JupyterLab, submitit, dask-jobqueue, Parsl, scikit-learn with
joblib, pandas, and Lightning.

The torch of tests is that of Debian's Python.
"""
DEBIAN = Path("/usr/lib/python3/dist-packages")
"""Where Debian's Python has its packages."""
