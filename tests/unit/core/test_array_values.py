"""The lines of a file as values of tasks."""

import io

import pytest

from iris_core.spec.array_values import value_of, values_of


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\n\r\nb b", ["a", "", "b b"]),
        ("é\n".encode(), ["é"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        ("a\n\ufeffb".encode(), ["a", "\ufeffb"]),
    ],
)
def test_each_line_is_a_value(data: bytes, values: list[str]) -> None:
    assert values_of(data) == values
    assert [value_of(io.BytesIO(data), index) for index in range(len(values))] == values
    with pytest.raises(
        ValueError, match=f"it has no line {len(values) + 1}, for task {len(values)}"
    ):
        value_of(io.BytesIO(data), len(values))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it has 0 lines"),
        (b"x\n" * 10_001, "it has 10001 lines; 1 to 10000 are possible"),
        (b"a\nb\0\n", "line 2 holds a NUL byte"),
        (b"x" * 60_001, "line 1 holds a NUL byte, or more than 60000 bytes"),
        (b"\xff", "it is not UTF-8 text"),
    ],
)
def test_what_cannot_be_values_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        values_of(data)


def test_one_value_is_read_in_bounded_memory() -> None:
    file = io.BytesIO(b"a\n" + b"x" * 1_000_000)
    assert (value_of(file, 0), file.tell()) == ("a", 2)
    file.seek(0)
    with pytest.raises(ValueError, match="line 2 holds a NUL byte, or more than 60000 bytes"):
        value_of(file, 2)
    assert file.tell() < 100_000
