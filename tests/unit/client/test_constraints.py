import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.client.options.constraints import parse_constraint
from iris.client.problems import InvalidOption
from iris_core.spec.jobs import Constraint
from iris_core.states import ConstraintOp as Op


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("zone=eu-1", Constraint("zone", Op.EQ, "eu-1")),
        ("zone==eu-1", Constraint("zone", Op.EQ, "eu-1")),
        ("zone!=eu-1", Constraint("zone", Op.NE, "eu-1")),
        ("zone", Constraint("zone", Op.EXISTS)),
        ("!zone", Constraint("zone", Op.NOT_EXISTS)),
        ("cores>=64", Constraint("cores", Op.GE, 64)),
        ("cores > 1.5", Constraint("cores", Op.GT, 1.5)),
        ("cores<64", Constraint("cores", Op.LT, 64)),
        ("cores<=64", Constraint("cores", Op.LE, 64)),
        ("zone in eu-1, eu-2", Constraint("zone", Op.IN, values=("eu-1", "eu-2"))),
        ("rack in 1,2", Constraint("rack", Op.IN, values=(1, 2))),
        ('rack="7"', Constraint("rack", Op.EQ, "7")),
        ("taint:spot", Constraint("taint:spot", Op.EXISTS)),
        ("note=a=b", Constraint("note", Op.EQ, "a=b")),
        ('note="=b"', Constraint("note", Op.EQ, "=b")),
        ('note=""', Constraint("note", Op.EQ, "")),
        ("interval", Constraint("interval", Op.EXISTS)),
    ],
)
def test_each_form_is_one_operator(text, condition):
    assert parse_constraint(text) == condition


def test_a_preferred_condition_keeps_its_mode():
    assert parse_constraint("zone=a", "preferred") == Constraint(
        "zone", Op.EQ, "a", mode="preferred"
    )


@pytest.mark.parametrize(
    "text", ["", "=", "zone=", "!zone=a", "zone in", "a b", "zone in ,", "-x=1"]
)
def test_what_has_none_of_the_forms_is_refused(text):
    with pytest.raises(InvalidOption):
        parse_constraint(text)


def test_a_key_in_capitals_is_refused_and_says_that_keys_are_lower_case():
    with pytest.raises(InvalidOption, match="lower case"):
        parse_constraint("Zone=eu-1")


@pytest.mark.parametrize(
    ("text", "shown"), [("zone = = eu", 'zone="= eu"'), ("cores>=>3", 'cores>=">3"')]
)
def test_two_operators_are_refused_with_the_quoted_value(text, shown):
    with pytest.raises(InvalidOption) as refused:
        parse_constraint(text)
    assert str(refused.value) == f"{text!r} has two operators; quote a value: {shown}"


KEYS = st.text(string.ascii_lowercase, min_size=1, max_size=8)
TEXTS = st.text(string.ascii_letters + string.digits + " ._-=<>!'\"", max_size=12)
VALUES = (
    st.integers(-(10**12), 10**12) | st.floats(-1e6, 1e6).map(lambda value: round(value, 3)) | TEXTS
)
SINGLE = st.builds(
    Constraint, KEYS, st.sampled_from([Op.EQ, Op.NE, Op.GT, Op.GE, Op.LT, Op.LE]), VALUES
)
LISTED = st.builds(
    lambda key, values: Constraint(key, Op.IN, values=tuple(values)),
    KEYS,
    st.lists(VALUES, min_size=1),
)
NAMED = st.builds(Constraint, KEYS, st.sampled_from([Op.EXISTS, Op.NOT_EXISTS]))


SIGNS = {Op.EQ: "=", Op.NE: "!=", Op.GT: ">", Op.GE: ">=", Op.LT: "<", Op.LE: "<="}


def written(condition: Constraint) -> str:
    if condition.op in SIGNS:
        return f"{condition.key}{SIGNS[condition.op]}{quoted(condition.value)}"
    if condition.op is Op.IN:
        return f"{condition.key} in {','.join(map(quoted, condition.values))}"
    return condition.key if condition.op is Op.EXISTS else f"!{condition.key}"


def quoted(value: int | float | str) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


@given(SINGLE | LISTED | NAMED)
def test_what_is_written_of_a_condition_is_read_back_as_the_same(condition):
    assert parse_constraint(written(condition)) == condition
