"""Tokens of attempts: what they say, and when keys come and go.
docs/adr/0040-tokens-of-attempts.md.
"""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core import codec
from iris_core.access import task_tokens
from iris_core.access.task_tokens import (
    LEEWAY_MS,
    ROTATE_MS,
    SETTLE_MS,
    BadTaskToken,
    SigningKey,
    TaskClaims,
)
from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import TaskGrant
from iris_core.spec.serving import TASK_TOKEN

HOUR_MS = 3_600_000
KEY, OTHER = SigningKey("k1", b"1" * 32, 0), SigningKey("k2", b"2" * 32, 0)
KEYS = {"k1": KEY}
REF = AttemptRef(7, 3, 1)


def made(
    key: SigningKey = KEY, job: int = 7, ref: AttemptRef = REF, expires_ms: int = HOUR_MS
) -> str:
    return task_tokens.token(task_tokens.grant(key, job, "ann", "w0", expires_ms), ref)


def test_a_token_says_whose_attempt_it_is_and_where_it_runs():
    assert task_tokens.verified(made(), KEYS, 0) == Caller("ann", "task", REF, "w0")


def test_a_token_is_short_and_fits_a_header_and_a_variable():
    token = made(expires_ms=2**41)
    assert token.startswith(TASK_TOKEN)
    assert token.isascii()
    assert token.isprintable()
    assert len(token) < 160


def test_a_worker_cannot_make_a_token_of_a_job_it_has_no_grant_for():
    granted = task_tokens.grant(KEY, 7, "ann", "w0", HOUR_MS)
    claims = codec.pack(TaskClaims("k1", 8, "root", "w0", HOUR_MS))
    forged = task_tokens.token(TaskGrant(8, claims, granted.key), AttemptRef(8, 0, 0))
    with pytest.raises(BadTaskToken, match="invalid task token"):
        task_tokens.verified(forged, KEYS, 0)


def test_a_task_cannot_make_another_token_of_its_own():
    signed = base64.urlsafe_b64decode(made().removeprefix(TASK_TOKEN) + "==")
    for at in range(len(signed)):
        for bit in (1, 0x80):
            changed = bytearray(signed)
            changed[at] ^= bit
            forged = TASK_TOKEN + base64.urlsafe_b64encode(changed).rstrip(b"=").decode()
            with pytest.raises(BadTaskToken):
                task_tokens.verified(forged, KEYS, 0)


def test_a_token_expires_with_its_grant_and_a_minute_for_clocks():
    task_tokens.verified(made(), KEYS, HOUR_MS + LEEWAY_MS)
    with pytest.raises(BadTaskToken, match="IRIS_TOKEN_FILE"):
        task_tokens.verified(made(), KEYS, HOUR_MS + LEEWAY_MS + 1)


def test_a_token_of_a_key_that_is_gone_is_refused():
    with pytest.raises(BadTaskToken, match="not known any more"):
        task_tokens.verified(made(OTHER), KEYS, 0)
    renamed = SigningKey("k1", OTHER.secret, 0)
    with pytest.raises(BadTaskToken, match="invalid task token"):
        task_tokens.verified(made(renamed), KEYS, 0)


@given(
    st.one_of(
        st.text(),
        st.text().map(TASK_TOKEN.__add__),
        st.binary().map(base64.urlsafe_b64encode).map(bytes.decode),
    )
)
def test_whatever_is_sent_as_a_token_is_refused_in_words(text: str):
    for token in (text, TASK_TOKEN + text):
        with pytest.raises(BadTaskToken):
            task_tokens.verified(token, KEYS, 0)


def test_secrets_are_not_in_what_is_logged():
    granted = task_tokens.grant(KEY, 7, "ann", "w0", HOUR_MS)
    assert (repr(KEY), repr(granted)) == ("SigningKey('k1')", "TaskGrant(job=7)")


@given(st.lists(st.integers(0, 3 * ROTATE_MS), max_size=40))
def test_every_unexpired_token_can_be_verified_after_each_key_rotation(pauses: list[int]):
    """Gateways have each key a while before it signs, and keep it until what it signed has
    expired.
    """
    keys: tuple[SigningKey, ...] = ()
    now_ms, signed, seen = 1_000_000, [], {}
    for number, pause_ms in enumerate([*pauses, 0]):
        if keys:  # a leader signs with what it has read, until it reads again
            for at_ms in {now_ms, now_ms + min(pause_ms, 600_000)}:
                key = task_tokens.signing(keys, at_ms)
                assert key is not None
                assert seen[key.id] <= at_ms - SETTLE_MS or len(seen) == 1
                signed.append((at_ms + HOUR_MS, key))
        now_ms += min(pause_ms, 600_000) if pause_ms < ROTATE_MS else pause_ms
        keys = task_tokens.rotated(
            keys, SigningKey(f"{number:03}", bytes([number]) * 32, now_ms), HOUR_MS
        )
        for key in keys:
            seen.setdefault(key.id, now_ms)
        known = {key.id for key in keys}
        assert all(key.id in known for expires_ms, key in signed if expires_ms >= now_ms)
        assert len(keys) <= 3
    assert now_ms - keys[-1].created_ms < ROTATE_MS
