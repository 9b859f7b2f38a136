"""The distribution has one spelling everywhere: on the package index, `iris` is another project."""

import re
import tomllib

import pytest

from iris_core import DISTRIBUTION
from tests.house.repository import ROOT, texts

ANOTHER = re.compile(
    r"(?<![\w/.-])iris\[[a-z,]+\]"  # a requirement with extras
    r"|\bpip3?(?:\"|')?\s+install\b[^\n#]*?[\s'\"]iris(?=[\s'\"=<>~!`]|$)"  # or one without
    r"|(?<![\w/.-])iris\s*[=~<>]=\s*\d"  # or a release
    r"|(?<![\w/.-])iris-(?:\d|\*)[\w.*-]*\.whl",  # or its file
    re.MULTILINE,
)


@pytest.mark.parametrize(
    "line",
    [
        "pip install 'iris[local]'",
        'pip install --quiet "iris[server,otlp]"',
        "/opt/iris/bin/pip install iris",
        "uv pip install --upgrade iris==0.1.0",
        "iris>=0.1",
        "cp iris-0.1.0-py3-none-any.whl /opt/wheels",
    ],
)
def test_the_old_spelling_is_found(line):
    assert ANOTHER.search(line)


@pytest.mark.parametrize(
    "line",
    [
        "pip install 'iris-control-plane[local]'",
        "pip install /opt/iris",
        "pip install '.[local]'",
        "cp iris-*.service x",
    ],
)
def test_what_is_ours_is_left_alone(line):
    assert not ANOTHER.search(line)


def test_no_page_script_or_message_installs_the_other_project():
    places = {
        str(path): ANOTHER.findall(text)
        for path, text in texts().items()
        if path.name != "test_distribution.py"
    }
    assert {path: found for path, found in places.items() if found} == {}


def test_the_code_names_the_distribution_as_the_project_does():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
