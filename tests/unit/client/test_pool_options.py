"""Options and files of a pool: only what is given is changed, and mistakes are named."""

from __future__ import annotations

import pytest

from iris.client.options.pools import is_pool_file, pool_changes, pool_from, read_value, shown_only
from iris.client.problems import InvalidOption
from iris_core.admission.patches import merged
from iris_core.admission.pools import validate_pool
from iris_core.codec import from_builtins
from iris_core.spec.option_table import field_words, pool_rows
from iris_core.spec.pools import PoolSpec, Reservation

OTHERWISE = {"name", "paused", "resources", "options"}
"""Fields that are no option of the same name."""


def test_only_what_is_given_is_changed():
    assert pool_changes({"max": 8}) == {"max": 8}
    assert pool_changes({"min": 0, "idle": "90s", "boot_timeout": 5}) == {
        "min": 0,
        "idle_s": 90.0,
        "boot_timeout_s": 5.0,
    }
    assert pool_changes({"cpu": "0.5", "memory": "4GiB"}) == {
        "resources": {"cpu_millis": 500, "memory_bytes": 4 << 30}
    }


def test_a_tpu_gives_the_hosts_and_the_chips_of_its_slices():
    assert pool_changes({"tpu": "v5litepod-16", "cpu": 8}) == {
        "hosts": 4,
        "resources": {"chips": 4, "cpu_millis": 8000},
        "attributes": {"device-type": "tpu", "device-variant": "v5litepod-16"},
    }


def test_gpus_are_those_of_each_host():
    assert pool_changes({"gpu": "H100x8", "attributes": {"zone": "eu-1"}}) == {
        "resources": {"chips": 8},
        "attributes": {"device-type": "gpu", "device-variant": "H100", "zone": "eu-1"},
    }


def test_a_whole_pool_of_options_is_valid():
    fields = merged(
        {"name": "v5e"},
        pool_changes(
            {
                "provider": "exec",
                "provider_options": {"program": "cloud", "zone": "eu-1", "old": None},
                "tpu": "v5litepod-16",
                "cpu": 8,
                "max": 4,
                "reservation": "tpus=64",
                "only": "any",
                "price": 1.5,
            }
        ),
    )
    spec = from_builtins(fields, PoolSpec)
    assert validate_pool(spec) == []
    assert (spec.options, spec.reservation) == (
        {"program": "cloud", "zone": "eu-1"},
        Reservation(name="tpus", chips=64),
    )


def test_none_ends_a_reservation():
    assert merged({"reservation": {"name": "a"}}, pool_changes({"reservation": "none"})) == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"idle": "soon"}, "idle: "),
        ({"cpu": "many"}, "cpu: 'many' is not a number of cores"),
        ({"gpu": "8"}, "gpu: '8' is not one kind"),
        ({"gpu": "H100x8,A100x8"}, "is not one kind"),
        ({"gpu": "H100x8", "tpu": "v5litepod-16"}, "a host has gpus or a tpu, not both"),
        ({"reservation": "tpus"}, "reservation: 'tpus' is not NAME=CHIPS"),
        ({"reservation": "tpus=-1"}, "reservation: 'tpus=-1' is not NAME=CHIPS"),
        ({"price": float("nan")}, "price is not a finite number"),
        ({"provider_options": {"boot_s": float("inf")}}, "options.boot_s is not a finite number"),
        ({"attributes": "zone=eu-1"}, "attributes is a dictionary"),
    ],
)
def test_what_cannot_be_understood_is_named(options, words):
    with pytest.raises(InvalidOption, match=words):
        pool_changes(options)


def test_all_mistakes_of_options_are_told_at_once():
    with pytest.raises(InvalidOption) as caught:
        pool_changes({"idle": "soon", "memory": "much", "reservation": "x"})
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("0.5", 0.5),
        ("true", True),
        ("false", False),
        ("eu-1", "eu-1"),
        ('"2"', "2"),
        ("", None),
    ],
)
def test_a_value_is_a_number_where_it_looks_like_one(text, value):
    found = read_value(text)
    assert (found, type(found)) == (value, type(value))


def test_each_field_of_a_pool_has_an_option():
    given = {name for row in pool_rows() for name in (row.name, f"{row.name}_s")}
    assert {*PoolSpec.__struct_fields__} - given == OTHERWISE


def test_refusals_of_fields_name_the_options_that_give_them():
    words = field_words()
    assert words["resources/cpu_millis"] == words["resources"] == "cpu"
    assert words["resources/chips"] == words["attributes/device-variant"] == "tpu gpu"
    assert words["reservation/chips"] == "reservation"
    assert words["options"] == "provider_options"


def test_files_and_names_cannot_be_confused():
    assert [is_pool_file(one) for one in ("-", "a.toml", "./b.json", "cpu", "v5e-spot")] == [
        True,
        True,
        True,
        False,
        False,
    ]


TOML = b"""
name = "cpu"
provider = "process"
max = 8
[resources]
cpu_millis = 2000
[options]
boot_s = 0.5
"""


def test_a_file_in_toml_has_the_keys_of_json():
    found = pool_from(TOML, "cpu.toml")
    assert found == pool_from(
        b'{"name":"cpu","provider":"process","max":8,"resources":{"cpu_millis":2000},'
        b'"options":{"boot_s":0.5}}',
        "cpu.json",
    )
    assert validate_pool(from_builtins(found, PoolSpec)) == []


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        (b"name = ", "a.toml", "a.toml: not TOML: "),
        (b"\xff", "a.toml", "a.toml: not UTF-8: "),
        (b"{", "a.json", "a.json: not JSON: "),
        (b"[]", "-", "-: a pool is an object of its fields, not a list"),
        (b"7", "a.json", "not one value"),
        (b"max = 1", "a.toml", "a.toml: a pool has a name, a text"),
        (b'name = "a"\nprice = nan', "a.toml", "a.toml: price is not a finite number"),
        (b'name = "a"\n[options]\nx = [inf]', "a.toml", r"options\.x\[0\] is not a finite"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(data, name, words):
    with pytest.raises(InvalidOption, match=words):
        pool_from(data, name)


def test_an_answer_of_the_gateway_is_told_from_unknown_keys():
    known = frozenset({"state", "version", "idle"})
    answer = {"name": "a", "max": 1, "state": "ok", "version": 3}
    assert shown_only(answer, known) == ["state", "version"]
    assert shown_only({"name": "a", "state": "ok"}, known) == []
    assert shown_only({**answer, "maxx": 2}, known) == []
