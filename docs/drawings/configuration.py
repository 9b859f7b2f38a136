"""docs/configuration.md: every key of `iris.toml` with its default, from the settings struct of each section."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

import msgspec

from drawings.markdown import document

SECTIONS = {
    "cluster": ("iris.cluster.settings:ClusterSettings", "`iris up`"),
    "nats": ("iris_bus.run:NatsSettings", "every service"),
    "run": ("iris_bus.run:RunSettings", "every service"),
    "state": ("iris_state.policy:Policy", "the state service"),
    "scheduler": ("iris_scheduler.settings:SchedulerSettings", "the scheduler"),
    "worker": ("iris_worker.settings:WorkerSettings", "a worker"),
    "gateway": ("iris_gateway.settings:GatewaySettings", "the gateway"),
}

EXPLAINED = """\
One file, `iris.toml`, for every service; each reads its own section and those for all. A key is said, the later wins:
as its default, in the file (`--config FILE` or `IRIS_CONFIG`), in the environment (`IRIS_STATE_TRIES=3` is `tries` of
`[state]`), on the command line of a service (`--set state.prepare_tries=3`). A key that does not exist is refused.

`iris server SERVICE --show-config` prints what a service would run with, and where each value comes from. The last
part of a name is the unit: `_s` seconds, `_bytes` bytes, `_millis` thousandths."""


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
    """The entries of the docstring's list of attributes, one bullet each; empty when it has none."""
    _, _, listed = (inspect.getdoc(kind) or "").partition("Attributes:\n")
    entries = re.split(r"\n(?=    \S)", listed.split("\n\n")[0].rstrip())
    said = [" ".join(entry.split()) for entry in entries if entry.strip()]
    return "\n".join(
        "* " + re.sub(r"(?:^|(?<=\. ))([a-z_, ]+): ", r"`\1`: ", entry.replace("``", "`")) for entry in said
    )


def configuration_document() -> str:
    """Every section with its defaults and what its keys mean."""
    parts = []
    for section, (place, reader) in SECTIONS.items():
        kind = struct_at(place)
        parts += [f"## `[{section}]`", f"Read by {reader}.", defaults(section, kind)]
        parts += [text for text in [meanings(kind)] if text]
    return document("Configuration", "the settings structs of the services", EXPLAINED, *parts)
