"""Redacts environment values under keys that look secret from a job's specification.

Every view of a job is redacted here; tasks, reruns and the journal keep the values. Out of scope:
arguments of a command, which every process list shows anyway. Source:
docs/design/reliability.md#security.
"""

from __future__ import annotations

import re

import msgspec

from iris_core.admission.jobs import MASK
from iris_core.spec.jobs import JobSpec

# One word of a key, split at _ . -; what a word may end in when it is written as one: githubtoken,
# dbPassword.
_WORD = re.compile(r"[^_.-]+")
_SECRET_WORDS = frozenset(
    {"key", "pass", "pw", "auth", "authorization", "cookie", "bearer", "private"}
)
_SECRET_ENDINGS = (
    "secret",
    "secrets",
    "password",
    "passwd",
    "passphrase",
    "token",
    "credential",
    "credentials",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
)


def is_secret(key: str) -> bool:
    """Whether a variable's name marks a secret: ``HF_TOKEN``, ``AWS_SECRET_ACCESS_KEY``,
    ``dbPassword``.
    """
    words = _WORD.findall(key.lower())
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS) for word in words)


def redacted(spec: JobSpec) -> JobSpec:
    """The specification without secrets; the same object when it holds none."""
    env = redacted_env(spec.env)
    return spec if env is spec.env else msgspec.structs.replace(spec, env=env)


def redacted_env(env: dict[str, str]) -> dict[str, str]:
    """An environment without secrets; the same object when it holds none."""
    if not any(map(is_secret, env)):
        return env
    return {key: MASK if is_secret(key) else value for key, value in env.items()}
