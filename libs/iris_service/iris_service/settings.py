"""Settings of a service: defaults in a struct, then `iris.toml`, then the environment, then the
command line.

A service declares one msgspec struct per section, every field with a default; a key no struct knows
is refused by name. `IRIS_STATE_RETRY_FOR_S=5` is the key ``retry_for_s`` of the section
``[state]``. A field that is a struct is a table of the section: ``timeout_s`` of ``[worker.check]``
is the key ``check.timeout_s`` of ``[worker]``. Out of scope: what the keys mean; where the file is
    written.
"""

from __future__ import annotations

import difflib
import math
import os
import pwd
import re
import tomllib
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import msgspec

from iris_service.version import VERSION

SECTIONS = (
    *("cluster", "nats", "run", "fleet", "state", "scheduler", "worker", "gateway", "proxy"),
    "provisioner",
    "notifier",
)
"""Every section `iris.toml` may have; all services read one file."""

GIVEN_TO_TASKS = frozenset({"IRIS_WORKER_ID", "IRIS_GATEWAY_URL"})
"""Variables set in every task's environment; they are not mistakes when a service is started inside
a task.
"""

_ENVIRONMENT = "environment "
_SECRET = re.compile(r"password|secret|token|seed|url$")
_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")

_READ = "read"
ReadFile = Annotated[str, msgspec.Meta(extra={_READ: True})]
"""The path of a file that the process reads; empty: none."""

S = TypeVar("S", bound=msgspec.Struct)


class BadSetting(Exception):
    """A setting that cannot be used; the text names it, its origin, and a valid value."""


class Settings:
    """The settings that were given, by section and key, with the origin of each."""

    def __init__(
        self, chosen: Mapping[str, Mapping[str, tuple[Any, str]]], loose: Mapping[str, str]
    ) -> None:
        self._chosen = chosen
        self._loose = loose

    def section(self, name: str, kind: type[S]) -> S:
        """The section as its struct, whose method ``check_forms``, if it has one, judges forms that
        its types do not.

        Raises BadSetting for an unknown key, or a value of the wrong kind or form.
        """
        chosen = {**self._from_environment(name, kind), **self._chosen.get(name, {})}
        fields = keys_of(kind)
        values: dict[str, Any] = {}
        for key, (value, origin) in chosen.items():
            if key not in fields:
                remedy = "unset it" if origin.startswith(_ENVIRONMENT) else "take it out"
                raise BadSetting(
                    f"{origin}: [{name}] has no key '{key}'{_unknown(key, fields, remedy)}"
                )
            table, _, last = key.rpartition(".")
            (values.setdefault(table, {}) if table else values)[last] = _split(
                value, fields[key].type
            )
        try:
            section = msgspec.convert(values, kind, strict=False)
        except msgspec.ValidationError as error:
            raise BadSetting(self._explain(name, chosen, error)) from error
        for key, (_, origin) in chosen.items():
            value = attrgetter(key)(section)
            if isinstance(value, float) and not math.isfinite(value):
                raise BadSetting(f"{origin}: [{name}] {key}: Expected a finite number, got {value}")
        if check := getattr(section, "check_forms", None):
            check()
        return section

    def check_files(self, name: str, kind: type[msgspec.Struct]) -> None:
        """Raises BadSetting for a file of the section that this process' user may not read. One
        that is missing or damaged is named where it is used.
        """
        values = self.section(name, kind)
        chosen = {**self._from_environment(name, kind), **self._chosen.get(name, {})}
        for key in read_files(kind):
            path = attrgetter(key)(values)
            if path and "://" not in path and (why := _forbidden(Path(path))):
                origin = chosen[key][1] if key in chosen else "default"
                raise BadSetting(f"{origin}: [{name}] {key}: {why}")

    def text(self, name: str, key: str) -> str:
        """One key as it was given, empty when it was not; for callers that do not load the
        section's struct.
        """
        loose = self._loose.get(f"IRIS_{name.upper()}_{key.upper()}", "")
        value, _ = self._chosen.get(name, {}).get(key, (loose, ""))
        return str(value)

    def texts(self, name: str, key: str) -> tuple[str, ...]:
        """As `text`, of a key that holds a list."""
        loose = self._loose.get(f"IRIS_{name.upper()}_{key.upper()}", "")
        value, _ = self._chosen.get(name, {}).get(key, (loose, ""))
        return tuple(map(str, _split(value, tuple)))

    def show(self, name: str, kind: type[msgspec.Struct]) -> str:
        """The section as TOML with each value's origin behind it; secrets are masked."""
        values = self.section(name, kind)
        chosen = {**self._from_environment(name, kind), **self._chosen.get(name, {})}
        lines = [f"[{name}]"]
        for key in keys_of(kind):
            value = _redacted(key, attrgetter(key)(values))
            origin = chosen[key][1] if key in chosen else "default"
            lines.append(f"{key} = {msgspec.json.encode(value).decode()}  # {origin}")
        return "\n".join(lines)

    def _from_environment(
        self, name: str, kind: type[msgspec.Struct]
    ) -> dict[str, tuple[Any, str]]:
        prefix = f"IRIS_{name.upper()}_"
        known = {key.replace(".", "_"): key for key in keys_of(kind)}
        found = {}
        for variable, value in self._loose.items():
            key = variable[len(prefix) :].lower()
            if variable.startswith(prefix) and (key in known or variable not in GIVEN_TO_TASKS):
                found[known.get(key, key)] = (value, f"{_ENVIRONMENT}{variable}")
        return found

    def _explain(
        self, name: str, chosen: Mapping[str, tuple[Any, str]], error: msgspec.ValidationError
    ) -> str:
        at = re.search(r"\$\.([\w.]+)", str(error))
        key = at[1] if at else ""
        origin = chosen[key][1] if key in chosen else "settings"
        return f"{origin}: [{name}] {key}: {str(error).split(' - at ')[0]}"


def load(file: Path | None, environ: Mapping[str, str], given: Sequence[str] = ()) -> Settings:
    """Read every source.

    Args:
        file: the `iris.toml` to read, None for none.
        environ: the process's environment; only ``IRIS_*`` is looked at.
        given: ``section.key=value`` from the command line; they win.

    Raises BadSetting for an unreadable file or an unknown section.
    """
    chosen: dict[str, dict[str, tuple[Any, str]]] = {}
    for name, values in (_read(file) if file is not None else {}).items():
        if name not in SECTIONS:
            meant = _unknown(name, SECTIONS, "take it out")
            raise BadSetting(f"{file}: there is no section [{name}]{meant}")
        if not isinstance(values, dict):
            raise BadSetting(f"{file}: '{name}' stands outside a section")
        given_keys = _flat(values)
        chosen[name] = {
            key: (value, str(file))
            for key, value in given_keys.items()
            if not _overruled(environ, name, key)
        }
    for text in given:
        place, equals, value = text.partition("=")
        name, dot, key = place.partition(".")
        if not (equals and dot and name in SECTIONS):
            raise BadSetting(
                f"command line: not SECTION.KEY=VALUE with a section of {', '.join(SECTIONS)}: {text!r}"
            )
        chosen.setdefault(name, {})[key] = (value, "command line")
    return Settings(
        chosen, {key: value for key, value in environ.items() if key.startswith("IRIS_")}
    )


def _overruled(environ: Mapping[str, str], name: str, key: str) -> bool:
    return f"IRIS_{name}_{key.replace('.', '_')}".upper() in environ


def keys_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The keys of a section, in order; those of a table in it are ``table.key``."""
    found: dict[str, msgspec.structs.FieldInfo] = {}
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            found |= {f"{field.name}.{key}": inner for key, inner in keys_of(field.type).items()}
        else:
            found[field.name] = field
    return found


def read_files(kind: type[msgspec.Struct]) -> list[str]:
    """The keys of a section that are paths of files which the process reads."""
    return [
        key
        for key, field in keys_of(kind).items()
        if any(getattr(meta, "extra", None) == {_READ: True} for meta in get_args(field.type)[1:])
    ]


def _forbidden(file: Path) -> str:
    """Why this process' user may not read a file, and what to do; empty when that is not so."""
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK))
    except PermissionError as error:
        user = _user()
        above = [place for place in reversed(file.absolute().parents) if not _enters(place)]
        if above:
            return f"{user} may not enter {above[0]}, so not read {file}; let that user enter it"
        return f"{user} may not read {file} ({error.strerror}); let that user read it"
    except OSError:
        pass
    return ""


def _enters(directory: Path) -> bool:
    return os.access(directory, os.X_OK, effective_ids=True)


def _user() -> str:
    """The user of this process by name and number."""
    number = os.geteuid()
    try:
        return f"user {pwd.getpwuid(number).pw_name} ({number})"
    except KeyError:
        return f"user {number}"


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= (
            {f"{key}.{last}": one for last, one in value.items()}
            if isinstance(value, dict)
            else {key: value}
        )
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(_forbidden(file) or f"{file}: {error}") from error


def _split(value: Any, kind: Any) -> Any:
    """Split ``a,b`` into a list where a source can only hold text."""
    if isinstance(value, str) and getattr(kind, "__origin__", kind) in (
        list,
        tuple,
        set,
        frozenset,
    ):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _redacted(key: str, value: Any) -> Any:
    if isinstance(value, str) and _SECRET.search(key):
        return _IN_URL.sub("***", value) if "://" in value else ("***" if value else "")
    return value


def _unknown(word: str, known: Mapping[str, object] | Sequence[str], remedy: str) -> str:
    """What to do with a name that this release, which may be the older one after a roll-back, does
    not know.
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    if close:
        return f"; did you mean '{close[0]}'? Release {VERSION} knows none of that name"
    return f"; release {VERSION} knows none of that name: {remedy}"
