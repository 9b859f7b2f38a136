"""docs/configuration.md: every key of `iris.toml` with its default, from the settings struct of
each section.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module

import msgspec

from drawings.docstrings import entries
from drawings.markdown import document, grid
from iris_core.quota import GATEWAY_LIMITS, QUOTA_LIMITS
from iris_core.spec.resources import RESOURCES
from iris_service.settings import keys_of

SECTIONS = {
    "cluster": ("iris.cluster.settings:ClusterSettings", "`iris up`"),
    "nats": ("iris_service.process_settings:NatsSettings", "every service"),
    "run": ("iris_service.process_settings:RunSettings", "every service"),
    "fleet": (
        "iris_service.process_settings:FleetSettings",
        "the state service and the provisioner",
    ),
    "state": ("iris_state.policy:Policy", "the state service"),
    "scheduler": ("iris_scheduler.settings:SchedulerSettings", "the scheduler"),
    "worker": ("iris_worker.settings:WorkerSettings", "a worker"),
    "gateway": ("iris_gateway.settings:GatewaySettings", "the gateway"),
    "proxy": ("iris_proxy.settings:ProxySettings", "the proxy of deployments"),
    "provisioner": (
        "iris_provisioner.settings:ProvisionerSettings",
        "the provisioner of the fleet",
    ),
    "notifier": ("iris_notifier.settings:NotifierSettings", "the notifier"),
}

EXPLAINED = """\
One file, `iris.toml`, for every service; each reads its own section and those for all. A value comes from, in rising
precedence: the default, the file (`--config FILE` or `IRIS_CONFIG`), the environment (`IRIS_STATE_PREPARE_TRIES=3` sets
`prepare_tries` of `[state]`), the command line of a service (`--set state.prepare_tries=3`). An unknown key is refused.
A key with a dot is one of a table: `check.timeout_s` of `[worker]` is `timeout_s` below `[worker.check]`, and
`IRIS_WORKER_CHECK_TIMEOUT_S`.

`iris server SERVICE --show-config` prints what a service would run with, and where each value comes from. It refuses
forms and numbers that cannot be used. Whether files exist and ports are free, only a start finds out. A file that the
user of the service may not read ends the start with its setting, its path or the directory in the way, and that user.

The last part of a name is the unit: `_s` seconds, `_bytes` bytes, `_millis` thousandths."""

LIMITS_EXPLAINED = """\
`iris quota show USER` shows all of them and what is used; 0 is unlimited. `iris quota set` sets those of one user, and
the best band the user may ask for (`--max-band`), or as `@GROUP` [those of each member of a
group](access.md#tokens-and-roles); `iris quota list` shows every user and group that has such limits."""
RESOURCES_EXPLAINED = (
    "What hosts have and tasks take, in HTTP, metrics and listings by the same name."
)


def struct_at(place: str) -> type[msgspec.Struct]:
    """The class ``module:Name`` names."""
    module, _, name = place.partition(":")
    kind: type[msgspec.Struct] = getattr(import_module(module), name)
    return kind


def defaults(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Key → its default as TOML; empty where it is unset."""
    found = {}
    for key, field in keys_of(kind).items():
        value = (
            field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        )
        found[key] = "" if value is None else msgspec.json.encode(value).decode()
    return found


def meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Key → what it means: its entry in the lists of attributes of the struct and of its bases.

    An entry of several keys (``a, b: ...``) is the meaning of each. Those of a table are
        ``table.key``.
    """
    found: dict[str, str] = {}
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            found |= {
                f"{field.name}.{key}": meaning for key, meaning in meanings(field.type).items()
            }
    for part in reversed(kind.__mro__):
        _, _, listed = inspect.cleandoc(part.__doc__ or "").partition("Attributes:\n")
        for entry in entries(listed.split("\n\n")[0]):
            pieces = re.split(r"(?:^\* |(?<=\. ))`([a-z_, ]+)`: ", entry)
            for keys, text in zip(pieces[1::2], pieces[2::2], strict=True):
                meaning = text.strip()
                found |= {key.strip(): meaning[:1].upper() + meaning[1:] for key in keys.split(",")}
    return found


def setting_rows(section: str) -> list[tuple[str, str, str]]:
    """Key, default and meaning of every setting of a section, in the order of its struct."""
    kind = struct_at(SECTIONS[section][0])
    meaning = meanings(kind)
    return [
        (f"`{key}`", f"`{value}`" if value else "", meaning.get(key, "").replace("|", "\\|"))
        for key, value in defaults(kind).items()
    ]


def configuration_document() -> str:
    """Every section: a row for each key."""
    parts = []
    for section, (_, reader) in SECTIONS.items():
        parts += [f"## `[{section}]`", f"Read by {reader}."]
        parts.append(grid(("key", "default", "meaning"), setting_rows(section)))
    parts += [
        "## Limits of a user",
        LIMITS_EXPLAINED,
        *limit_tables(),
        "## Resources",
        RESOURCES_EXPLAINED,
        resources(),
    ]
    return document(
        "Configuration",
        "the settings structs of the services and the tables of limits",
        EXPLAINED,
        *parts,
    )


def limit_tables() -> list[str]:
    """Every limit of a user, those of quotas and those of the gateway."""
    quota = [
        (f"`{limit.name}`", ", ".join(f"`{option}`" for option in limit.options), limit.about)
        for limit in QUOTA_LIMITS
    ]
    alike = [(f"`{limit.name}`", limit.words, limit.about) for limit in GATEWAY_LIMITS]
    return [
        grid(("set for one user", "option of `iris quota set`", "what it bounds"), quota),
        grid(("key of `[gateway]`", "for each user alike", "beyond it"), alike),
    ]


def resources() -> str:
    """Every resource with its names."""
    rows = [
        (
            f"`{resource.name}`",
            f"`--{resource.word.replace('_', '-')}`" if resource.requested else "`--gpu`, `--tpu`",
            f"`not_enough_{resource.word}`",
            resource.unit.show(resource.largest),
        )
        for resource in RESOURCES
    ]
    return grid(
        ("name, key of `[worker]`", "option of `iris run`", "pending reason", "largest request"),
        rows,
    )
