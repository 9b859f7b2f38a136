import os

import pytest


@pytest.fixture(autouse=True)
def stays_in_its_directory():
    """A worker changes to a task's directory to start its process; here that would be every later
    test's directory.
    """
    before = os.getcwd()
    yield
    os.chdir(before)
