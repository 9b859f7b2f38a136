"""Packages of programs that tests run, which the lock file does not name."""

from tests.house.repository import ROOT

FRAMEWORKS = ROOT / ".frameworks"
"""Where `.ci/run` installs JAX, JupyterLab, submitit, dask-jobqueue, Parsl, scikit-learn with
joblib, pandas, and Lightning.

The torch of tests is that of Debian's Python.
"""
