"""The section ``[provisioner]`` of `iris.toml`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from iris_service.listening import check_url
from iris_service.settings import BadSetting


class ProvisionerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a provisioner has beside its orders.

    Attributes:
        programs: ``NAME=PATH`` each: the programs that pools of the provider ``exec`` may name.
        keys: the directory with the keys of slots, made by `iris admin nats-config` with its
            option `--pools`; empty: hosts need none.
        wanted_keys: a file in which it writes which hosts have no key, for what makes them:
            `iris up` sets it, and makes them. Empty: an admin makes keys.
        data: the directory of the slices of the provider ``process``.
        gateway_url: where hosts reach the gateway.
        worker: ``KEY=VALUE`` each: settings of ``[worker]`` for hosts of the provider ``process``.
        tpu_endpoint: the address of Cloud TPU's API, for pools of the provider ``tpu``.
    """

    programs: tuple[str, ...] = ()
    keys: str = ""
    wanted_keys: str = ""
    data: str = "iris-fleet"
    gateway_url: str = "http://127.0.0.1:8080"
    worker: tuple[str, ...] = ()
    tpu_endpoint: str = "https://tpu.googleapis.com"

    def check_forms(self) -> None:
        """Raises BadSetting for a program that is not ``NAME=PATH``, and for what is no address."""
        check_url("provisioner", "tpu_endpoint", self.tpu_endpoint)
        for text in (*self.programs, *self.worker):
            name, equals, value = text.partition("=")
            if not (name and equals and value):
                raise BadSetting(f"[provisioner] programs, worker: {text!r} is not NAME=VALUE")
        for name, path in self.by_name.items():
            if not Path(path).is_absolute():
                raise BadSetting(f"[provisioner] programs: {name}: {path!r} is no absolute path")

    @property
    def directory(self) -> Path:
        """The directory of the slices of the provider ``process``."""
        return Path(self.data).absolute()

    @property
    def by_name(self) -> dict[str, str]:
        """The path of each program."""
        pairs = (text.partition("=") for text in self.programs)
        return {name: path for name, _, path in pairs}
