"""Parses constraints as text: ``zone=eu-1``, ``!taint:spot``, ``cores>=64``, ``zone in a,b``.

Text in, `Constraint` out; raises `InvalidOption`. Out of scope: whether a host satisfies one.
Source: docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

import re
from typing import Literal

from iris.client.problems import InvalidOption
from iris_core.spec.jobs import Attribute, Constraint
from iris_core.states import ConstraintOp

Mode = Literal["required", "preferred"]

_KEY = r"[a-z0-9][a-z0-9._:/-]*"
_COMPARED = re.compile(rf"(?P<key>{_KEY})\s*(?P<op>!=|==|>=|<=|=|>|<)\s*(?P<value>.*)\Z", re.DOTALL)
_LISTED = re.compile(rf"(?P<key>{_KEY})\s+in\s+(?P<values>.+)\Z", re.DOTALL)
_NAMED = re.compile(rf"(?P<no>!?)\s*(?P<key>{_KEY})\Z")
_INTEGER = re.compile(r"[+-]?\d{1,18}\Z")
_DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d{1,3})?\Z")

FORMS = "write key=value, key!=value, key, !key, key>=3 or 'key in a,b'"

_OPS = {
    "=": ConstraintOp.EQ,
    "==": ConstraintOp.EQ,
    "!=": ConstraintOp.NE,
    ">": ConstraintOp.GT,
    ">=": ConstraintOp.GE,
    "<": ConstraintOp.LT,
    "<=": ConstraintOp.LE,
}


def parse_constraint(text: str, mode: Mode = "required") -> Constraint:
    """One condition. Numbers are numbers unless quoted: ``rack="7"`` compares text. Raises
    InvalidOption.
    """
    plain = text.strip()
    if match := _LISTED.match(plain):
        values = tuple(parse_value(value) for value in match["values"].split(","))
        return Constraint(match["key"], ConstraintOp.IN, values=values, mode=mode)
    if match := _COMPARED.match(plain):
        if match["value"].startswith(tuple("=<>!")):
            raise InvalidOption(
                f'{text!r} has two operators; quote a value: {match["key"]}{match["op"]}"{match["value"]}"'
            )
        return Constraint(
            match["key"], _OPS[match["op"]], value=parse_value(match["value"]), mode=mode
        )
    if match := _NAMED.match(plain):
        return Constraint(
            match["key"], ConstraintOp.NOT_EXISTS if match["no"] else ConstraintOp.EXISTS, mode=mode
        )
    hint = "; keys are lower case" if plain != plain.lower() and parseable(plain.lower()) else ""
    raise InvalidOption(f"{text!r} is not a constraint{hint}; {FORMS}")


def parseable(text: str) -> bool:
    """Whether the text has one of the six forms."""
    return any(form.match(text) for form in (_LISTED, _COMPARED, _NAMED))


def parse_value(text: str) -> Attribute:
    """An int, a float or text;

    quotes make it text whatever it looks like. Raises InvalidOption when nothing is there.
    """
    plain = text.strip()
    if len(plain) >= 2 and plain[0] == plain[-1] and plain[0] in "\"'":
        return plain[1:-1]
    if not plain:
        raise InvalidOption(
            'a constraint compares with a value; write key="" for an empty text, or key to ask that it is set'
        )
    if _INTEGER.match(plain):
        return int(plain)
    return float(plain) if _DECIMAL.match(plain) else plain
