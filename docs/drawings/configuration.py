"""docs/configuration.md: every key of `iris.toml` with its default, from the settings struct of each section."""

from __future__ import annotations

import inspect
from importlib import import_module

import msgspec

from drawings.docstrings import entries
from drawings.markdown import document, grid
from iris_core.quota import GATEWAY_LIMITS, QUOTA_LIMITS
from iris_core.resources import RESOURCES

SECTIONS = {
    "cluster": ("iris.cluster.settings:ClusterSettings", "`iris up`"),
    "nats": ("iris_bus.run:NatsSettings", "every service"),
    "run": ("iris_bus.run:RunSettings", "every service"),
    "state": ("iris_state.policy:Policy", "the state service"),
    "scheduler": ("iris_scheduler.settings:SchedulerSettings", "the scheduler"),
    "worker": ("iris_worker.settings:WorkerSettings", "a worker"),
    "gateway": ("iris_gateway.settings:GatewaySettings", "the gateway"),
    "proxy": ("iris_proxy.settings:ProxySettings", "the proxy of deployments"),
}

EXPLAINED = """\
One file, `iris.toml`, for every service; each reads its own section and those for all. A key is said, the later wins:
as its default, in the file (`--config FILE` or `IRIS_CONFIG`), in the environment (`IRIS_STATE_PREPARE_TRIES=3` is
`prepare_tries` of `[state]`), on the command line of a service (`--set state.prepare_tries=3`). A key that does not
exist is refused.

`iris server SERVICE --show-config` prints what a service would run with, and where each value comes from. The last
part of a name is the unit: `_s` seconds, `_bytes` bytes, `_millis` thousandths."""

LIMITS_EXPLAINED = """\
`iris quota show USER` shows all of them and what is used; 0 is unlimited. `iris quota set` sets those of one user, and
the best band the user may ask for (`--max-band`); `iris quota list` shows every user that has such limits."""
RESOURCES_EXPLAINED = "What hosts have and tasks take, in HTTP, metrics and listings by the same name."


def struct_at(place: str) -> type[msgspec.Struct]:
    """The class ``module:Name`` names."""
    module, _, name = place.partition(":")
    kind: type[msgspec.Struct] = getattr(import_module(module), name)
    return kind


def defaults(section: str, kind: type[msgspec.Struct]) -> str:
    """The section as TOML, every key at its default; what is unset by default stands in a comment."""
    lines = [f"[{section}]"]
    for field in msgspec.structs.fields(kind):
        value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        said = "" if value is None else msgspec.json.encode(value).decode()
        lines.append(f"{field.encode_name} = {said}" if said else f"# {field.encode_name} =")
    return "\n".join(["```toml", *lines, "```"])


def meanings(kind: type[msgspec.Struct]) -> str:
    """The entries of the docstring's list of attributes and of those of its bases, one bullet each."""
    found: list[str] = []
    for part in kind.__mro__:
        _, _, listed = inspect.cleandoc(part.__doc__ or "").partition("Attributes:\n")
        found += entries(listed.split("\n\n")[0])
    return "\n".join(found)


def configuration_document() -> str:
    """Every section with its defaults and what its keys mean."""
    parts = []
    for section, (place, reader) in SECTIONS.items():
        kind = struct_at(place)
        parts += [f"## `[{section}]`", f"Read by {reader}.", defaults(section, kind)]
        parts += [text for text in [meanings(kind)] if text]
    parts += [
        "## Limits of a user",
        LIMITS_EXPLAINED,
        *limit_tables(),
        "## Resources",
        RESOURCES_EXPLAINED,
        resources(),
    ]
    return document("Configuration", "the settings structs of the services and the tables of limits", EXPLAINED, *parts)


def limit_tables() -> list[str]:
    """Every limit of a user, those of quotas and those of the gateway."""
    quota = [(f"`{limit.name}`", f"`--{limit.name.replace('_', '-')}`", limit.about) for limit in QUOTA_LIMITS]
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
    return grid(("name, key of `[worker]`", "option of `iris run`", "pending reason", "largest request"), rows)
