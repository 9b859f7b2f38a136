"""Selection of benchmark rows: named ones, all by default, none if a name is unknown."""

import pytest

from benchmarks.__main__ import _options


def test_naming_no_row_is_no_mistake():
    assert (_options([]).rows, _options(["B1", "B4", "--quick"]).rows) == ([], ["B1", "B4"])


def test_a_row_that_does_not_exist_is_refused(capsys):
    with pytest.raises(SystemExit):
        _options(["B1", "B99"])
    assert "no such row: B99" in capsys.readouterr().err
