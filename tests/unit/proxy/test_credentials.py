"""Which bearer tokens services do not receive."""

import base64
import json

import pytest

from iris_core.access.token_file import digest_of
from iris_proxy.http.credentials import OwnTokens

OURS = OwnTokens({digest_of("secret")}, "https://id.example.org", "iris")


def jwt(**claims: object) -> str:
    parts = ({"alg": "RS256"}, claims)
    return ".".join(
        [
            *(
                base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
                for part in parts
            ),
            "s",
        ]
    )


MINE = {"iss": OURS.issuer, "aud": OURS.audience}


@pytest.mark.parametrize(
    ("authorization", "accepted"),
    [
        ("bearer secret", True),
        ("Bearer  secret ", True),
        ("Bearer iristask_ab.cd", True),
        (f"Bearer {jwt(**MINE)}", True),
        (f"BEARER  {jwt(iss=OURS.issuer, aud=['other', 'iris'])}", True),
        (f"Bearer {jwt(iss=OURS.issuer, aud='shop')}", False),
        (f"Bearer {jwt(iss=OURS.issuer, aud=['shop'])}", False),
        (f"Bearer {jwt(iss='https://other.example.org', aud='iris')}", False),
        (f"Bearer {jwt(iss={'a': 1}, aud=[{}])}", False),
        (f"Bearer {jwt()}", False),
        ("Bearer a.b.c", False),
        ("Bearer a.é.c", False),
        (f"Bearer a.{base64.urlsafe_b64encode(b'[' * 60_000).decode()}.c", False),
        ("Bearer sk-123", False),
        ("Basic secret", False),
        ("secret", False),
        ("", False),
    ],
)
def test_tokens_that_iris_accepts_are_recognised(authorization: str, accepted: bool):
    assert OURS.accepts(authorization) is accepted


def test_without_an_issuer_its_tokens_are_those_of_services():
    nobody = OwnTokens()
    assert [
        nobody.accepts(f"Bearer {token}") for token in (jwt(**MINE), "secret", "iristask_x")
    ] == [
        False,
        False,
        True,
    ]
