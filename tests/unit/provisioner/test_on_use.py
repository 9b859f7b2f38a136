"""A provider that is imported when a pool uses it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from iris_core.messages.state_provisioner import SliceOrder
from iris_provisioner.providers.on_use import ClosableProvider, ProviderOnUse
from iris_provisioner.providers.provider import ListFailed

ORDER = SliceOrder("create", "tpu", {}, "v5e", "v5e-0", 1)
MISSING = (
    "the provider tpu needs google: install iris-control-plane[gcp] where the provisioner runs"
)


def missing() -> ClosableProvider:
    raise ModuleNotFoundError("No module named 'google'", name="google")


async def test_without_its_libraries_the_answer_names_the_extra() -> None:
    provider = ProviderOnUse("tpu", "gcp", missing)
    for call in (provider.create, provider.delete):
        answer = await call(ORDER)
        assert (answer.answer, answer.detail) == ("refused", MISSING)
    with pytest.raises(ListFailed, match="needs google"):
        await provider.listed({})
    await provider.close()


def test_a_provisioner_without_such_pools_imports_none_of_them() -> None:
    script = (
        "import sys; import iris_provisioner.service;"
        " print([name for name in ('httpx', 'google.auth') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
