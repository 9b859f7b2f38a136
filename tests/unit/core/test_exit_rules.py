"""Rules for exit codes: the first that matches counts, and a code never means a signal."""

import pytest

from iris_core.spec.exit_rules import ExitAction, ExitRule, action, mistakes, signal_number

RULES = (
    ExitRule((75, "64-70"), "requeue"),
    ExitRule(("SIGBUS",), "retry"),
    ExitRule(("1-255",), "fail"),
)


@pytest.mark.parametrize(
    ("exit_code", "signal", "expected"),
    [
        (75, None, "requeue"),
        (64, None, "requeue"),
        (70, None, "requeue"),
        (71, None, "fail"),
        (7, None, "fail"),
        (135, None, "fail"),
        (None, 7, "retry"),
        (None, 9, None),
    ],
)
def test_the_first_rule_that_matches_counts(
    exit_code: int | None, signal: int | None, expected: ExitAction | None
):
    assert action(RULES, exit_code, signal) == expected


@pytest.mark.parametrize("code", [0, "0", "0-5", 256, "5-4", "x", "SIGX", "BUS", -1, ""])
def test_a_code_that_cannot_be_is_refused(code: int | str):
    assert list(mistakes(ExitRule((code,), "retry")))


def test_a_rule_without_a_code_is_refused():
    assert list(mistakes(ExitRule((), "retry"))) == ["there is no code"]


def test_a_signal_has_its_number_with_or_without_sig():
    assert (signal_number("SIGUSR1"), signal_number("USR1"), signal_number("INT")) == (10, 10, 2)
