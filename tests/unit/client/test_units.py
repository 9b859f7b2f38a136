import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.client.options.units import parse_cpu, parse_duration, parse_gpu, parse_size
from iris.client.problems import InvalidOption
from iris_core.spec.resources import Device


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("512MiB", 512 << 20),
        ("4GiB", 4 << 30),
        ("4Gi", 4 << 30),
        ("4G", 4 << 30),
        ("4g", 4 << 30),
        ("4GB", 4 * 10**9),
        ("1.5GiB", 3 << 29),
        ("10 kB", 10_000),
        ("100B", 100),
    ],
)
def test_a_size_is_bytes_whatever_its_unit(text, count):
    assert parse_size(text) == count


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1", "4XiB", "4 4", "1e9", "iB", "4i", "nan", "4GiBs"]
)
def test_what_is_no_size_is_refused_with_an_example(text):
    with pytest.raises(InvalidOption, match="4GiB"):
        parse_size(text)


@given(st.integers(1 << 20, 10**15))
def test_a_bare_number_is_that_many_bytes(count):
    assert parse_size(str(count)) == count


@pytest.mark.parametrize("text", ["4", "512", "1048575"])
def test_a_bare_number_below_a_mebibyte_is_a_unit_forgotten(text):
    with pytest.raises(InvalidOption, match=f"{text}GiB, or {text}B"):
        parse_size(text)
    assert parse_size(f"{text}B") == int(text)
    assert parse_size("0") == 0


@given(st.integers(0, 10**6), st.sampled_from([("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)]))
def test_binary_units_are_powers_of_two(count, unit):
    assert parse_size(f"{count}{unit[0]}B") == count << unit[1]


@pytest.mark.parametrize(
    ("text", "millis"),
    [("0.5", 500), ("8", 8000), ("500m", 500), ("0", 0), ("0.001", 1), ("1e1", 10_000)],
)
def test_cores_are_thousandths(text, millis):
    assert parse_cpu(text) == millis


@pytest.mark.parametrize("text", ["", "-1", "0.0001", "1.5m", "nan", "inf", "two", "1,5"])
def test_cores_that_are_no_whole_thousandths_are_refused(text):
    with pytest.raises(InvalidOption):
        parse_cpu(text)


@given(st.integers(0, 10**7))
def test_every_whole_thousandth_of_a_core_can_be_said(millis):
    assert parse_cpu(f"{millis // 1000}.{millis % 1000:03d}") == millis


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("01:30:00", 5400),
        ("1-00:00:10", 86410),
        ("500ms", 0.5),
        ("2d", 172800),
        ("1.5h", 5400),
    ],
)
def test_a_time_is_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "10 m", "m", "1h30", "1w", "1:60:00", "30:00"])
def test_what_is_no_time_is_refused_with_an_example(text):
    with pytest.raises(InvalidOption, match="10m"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("H100x8", Device("gpu", "H100", 8)),
        ("H100", Device("gpu", "H100", 1)),
        ("8", Device("gpu", "auto", 8)),
        ("MI300X", Device("gpu", "MI300X", 1)),
        ("MI300Xx4", Device("gpu", "MI300X", 4)),
        ("rtx4090", Device("gpu", "rtx4090", 1)),
        ("rtx4090x2", Device("gpu", "rtx4090", 2)),
        ("H100x9999999", Device("gpu", "H100", 9_999_999)),
        ("MI300Xx128", Device("gpu", "MI300X", 128)),
        ("auto", Device("gpu", "auto", 1)),
    ],
)
def test_a_gpu_is_a_variant_and_a_count(text, device):
    assert parse_gpu(text) == device


@pytest.mark.parametrize(
    "text",
    ["", "0", "H100x0", "H100x-1", "H100x", "H100x1.5", "H100:0", "-1", "H 100", "8xH100", "٣"],
)
def test_what_is_no_gpu_is_refused_with_an_example(text):
    with pytest.raises(InvalidOption, match="H100x8"):
        parse_gpu(text)
