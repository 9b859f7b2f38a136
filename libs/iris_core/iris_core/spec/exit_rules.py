"""What is done when a task ends by itself with a certain exit code or by a certain signal. Pure.

A rule lists exit codes (75, ``64-78``) and names of signals (``SIGBUS``). A code never means a
signal: a shell reports the signal of its child as 128 + n, which is an exit code. Source:
    docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

ExitAction = Literal["retry", "requeue", "fail"]
TaskExit = int | str
"""An exit code, a range of exit codes, or the name of a signal."""

_SIGNALS = (
    *(
        "HUP",
        "INT",
        "QUIT",
        "ILL",
        "TRAP",
        "ABRT",
        "BUS",
        "FPE",
        "KILL",
        "USR1",
        "SEGV",
        "USR2",
        "PIPE",
        "ALRM",
    ),
    *(
        "TERM",
        "STKFLT",
        "CHLD",
        "CONT",
        "STOP",
        "TSTP",
        "TTIN",
        "TTOU",
        "URG",
        "XCPU",
        "XFSZ",
        "VTALRM",
        "PROF",
    ),
    *("WINCH", "IO", "PWR", "SYS"),
)
SIGNALS = {f"SIG{name}": number for number, name in enumerate(_SIGNALS, start=1)}
"""The signals of Linux, from signal(7); real-time signals have no names."""
SIGNAL_PATTERN = f"SIG({'|'.join(_SIGNALS)})"
_CODE = "(0{0,2}[1-9]|0?[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])"
LARGEST = 255
MAX_RULES = 32

_RANGE = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?\Z")


class ExitRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is done when a task ends with one of these: retry charges a failure, requeue a requeue,
    fail ends it.
    """

    codes: Annotated[
        tuple[
            Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 255})]
            | Annotated[
                str, Meta(extra_json_schema={"pattern": f"^({SIGNAL_PATTERN}|{_CODE}(-{_CODE})?)$"})
            ],
            ...,
        ],
        Meta(extra_json_schema={"minItems": 1}),
    ]
    do: ExitAction


def action(
    rules: Iterable[ExitRule], exit_code: int | None, signal: int | None
) -> ExitAction | None:
    """What the first rule that matches an end says; None when none does."""
    return next((rule.do for rule in rules if _matches(rule, exit_code, signal)), None)


def signal_name(number: int) -> str:
    """``SIGKILL``; a real-time signal is called by its number."""
    return next((name for name, one in SIGNALS.items() if one == number), f"SIG{number}")


def signal_number(name: str) -> int:
    """``SIGUSR1`` or ``USR1``. Raises ValueError, for a person."""
    found = SIGNALS.get(name if name.startswith("SIG") else f"SIG{name}")
    if found is None:
        raise ValueError(f"{name[:80]!r} is not a signal: SIGTERM, USR1, ...")
    return found


def mistakes(rule: ExitRule) -> Iterator[str]:
    """What is wrong with the codes of a rule, for a person."""
    if not rule.codes:
        yield "there is no code"
    for code in rule.codes:
        try:
            _read(code)
        except ValueError as error:
            yield str(error)


def _matches(rule: ExitRule, exit_code: int | None, signal: int | None) -> bool:
    return any(
        (signal if is_signal else exit_code) in numbers
        for is_signal, numbers in map(_read, rule.codes)
    )


def _read(code: TaskExit) -> tuple[bool, range]:
    """Whether a code names a signal, and the numbers it stands for. Raises ValueError, for a
    person.
    """
    text = str(code)
    if text.startswith("SIG"):
        number = signal_number(text)
        return True, range(number, number + 1)
    found = _RANGE.match(text)
    if found is None:
        raise ValueError(
            f"{text[:80]!r} is not an exit code, range of exit codes or signal: 75, 64-78, SIGBUS"
        )
    first = int(found[1])
    last = int(found[2] or found[1])
    if first == 0:
        raise ValueError("exit code 0 is success, whatever the rules say")
    if not first <= last <= LARGEST:
        raise ValueError(f"{text} is not within 1 to {LARGEST}")
    return False, range(first, last + 1)
