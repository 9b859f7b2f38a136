"""What a TPU VM is given so that it becomes the worker of its slot: the metadata of its slice.

All VMs of a slice have the same metadata. Which host a VM is follows from its number, which the
cloud gives it; `deploy/tpu-vm/startup.sh` reads that. Source: docs/design/fleet.md#cloud-tpu.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from iris_core.messages.state_provisioner import OrderedHost

SCRIPT = "startup.sh"
UNIT = "iris-worker.service"
_PACKAGED = Path(__file__).parents[1] / "tpu_vm"
_DEPLOY = Path(__file__).parents[4] / "deploy"
_IN_CHECKOUT = {SCRIPT: _DEPLOY / "tpu-vm" / SCRIPT, UNIT: _DEPLOY / "systemd" / UNIT}
CA = "/etc/iris/nats-ca.pem"
"""Where the script puts the certificates that sign those of the NATS servers."""


class VmSettings(NamedTuple):
    """What the workers of all slices are told.

    Attributes:
        cluster: its name. tls_ca: a file; empty: none. version: the release that a VM installs
            where its pool names none.
    """

    nats_url: str
    gateway_url: str
    cluster: str = "iris"
    tls_ca: str = ""
    version: str = ""


def metadata(
    hosts: Sequence[OrderedHost],
    seeds: Sequence[str],
    settings: VmSettings,
    *,
    version: str = "",
    wheels: str = "",
) -> dict[str, str]:
    """The metadata of a slice. ``seeds``: of the hosts, in their order; empty: it needs none.
    Raises OSError.
    """
    lines = [f"{host.name} {seed}".rstrip() for host, seed in zip(hosts, seeds, strict=True)]
    found = {
        "startup-script": _file(SCRIPT),
        "iris-unit": _file(UNIT),
        "iris-config": _config(hosts, settings),
        "iris-hosts": "\n".join(lines) + "\n",
        "iris-version": version or settings.version,
    }
    if wheels:
        found["iris-wheels"] = wheels
    if settings.tls_ca:
        found["iris-nats-ca"] = Path(settings.tls_ca).read_text()
    return found


def _file(name: str) -> str:
    """A file of `deploy`, which wheels have beside this package."""
    packaged = _PACKAGED / name
    return (packaged if packaged.exists() else _IN_CHECKOUT[name]).read_text()


def _config(hosts: Sequence[OrderedHost], settings: VmSettings) -> str:
    """The text of `iris.toml` on each VM. What differs between them the worker finds out."""
    first = hosts[0].attributes
    common = [
        f"{key}={value}"
        for key, value in first.items()
        if all(host.attributes.get(key) == value for host in hosts)
    ]
    lines = ["[nats]", f"url = {_text(settings.nats_url)}"]
    if settings.tls_ca:
        lines.append(f"tls_ca = {_text(CA)}")
    lines += ["", "[run]", f"cluster = {_text(settings.cluster)}"]
    lines += ["", "[worker]", f"gateway_url = {_text(settings.gateway_url)}"]
    lines.append(f"attributes = [{', '.join(map(_text, common))}]")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    """A string of TOML, whose escapes are those of JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
