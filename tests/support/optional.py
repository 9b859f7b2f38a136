"""Optional programs of tests: their names on PATH and the Debian package of each; a PATH on which
all are absent.

The one list of them: a test names what it needs of it (`tests/support/needs.py`), and `.ci/run`
installs from it and hides by it. It runs before `.venv` is there, hence by the standard library
alone::

    python3 tests/support/optional.py install           # what `.ci/run` installs: a name, its package
    python3 tests/support/optional.py absent            # all that Debian has: a name, its package
    python3 tests/support/optional.py hide DIRECTORY PATH    # prints that PATH without any of them
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Optional:
    """One that a test may need."""

    programs: tuple[str, ...]
    """The first is what a test starts; all are there, or the need is not met."""
    package: str
    """Of Debian; empty where Debian has none."""
    parts: tuple[str, ...] = ()
    """Other programs of the package or in place of it, which are absent where it is."""
    ci: bool = True
    """Whether `.ci/run` installs it, by apt or by pip."""


OPTIONAL: Mapping[str, Optional] = {
    "bwrap": Optional(("bwrap",), "bubblewrap"),
    "cc": Optional(("cc",), "gcc", ("gcc", "clang")),
    "chromium": Optional(("chromium",), "chromium", ("chromium-browser", "google-chrome")),
    "curl": Optional(("curl",), "curl"),
    "docker": Optional(
        programs=("dockerd", "docker", "docker-init", "containerd"),
        package="docker.io",
        parts=("containerd-shim", "containerd-shim-runc-v2", "ctr", "docker-proxy"),
    ),
    "docker-compose": Optional(("docker-compose",), "docker-compose"),
    "git": Optional(("git",), "git"),
    "ip": Optional(("ip",), "iproute2"),
    "kubectl": Optional(("kubectl",), "kubernetes-client", ci=False),
    "nginx": Optional(("nginx",), "nginx"),
    "npm": Optional(("npm",), "npm", ("node", "nodejs", "npx"), ci=False),
    "openssl": Optional(("openssl",), "openssl"),
    "podman": Optional(("podman",), "podman", ("buildah",)),
    "prometheus": Optional(("prometheus", "promtool"), "prometheus"),
    "runc": Optional(("runc",), "runc", ("crun",)),
    "shellcheck": Optional(("shellcheck",), "shellcheck"),
    "strace": Optional(("strace",), "strace"),
    "systemd-analyze": Optional(("systemd-analyze",), "systemd", ci=False),
    "torchrun": Optional(("torchrun",), "python3-torch"),
    "uv": Optional(("uv",), "", ("uvx",)),
    "wget": Optional(("wget",), "wget"),
}

PROGRAMS: Mapping[str, str] = {
    program: name
    for name, optional in OPTIONAL.items()
    for program in (*optional.programs, *optional.parts)
}
"""Program → its name in `OPTIONAL`."""


def hide(directory: Path, path: str, hidden: Set[str] = PROGRAMS.keys()) -> str:
    """``path`` without the hidden programs.

    A directory of it that holds one is replaced by a directory of links to all others, below
    ``directory``, which every user can read.
    """
    entries = []
    given = filter(None, path.split(os.pathsep))
    for number, entry in enumerate(dict.fromkeys(map(os.path.realpath, given))):
        found = os.listdir(entry) if os.path.isdir(entry) else []
        if hidden.isdisjoint(found):
            entries.append(entry)
            continue
        links = directory / str(number)
        links.mkdir(mode=0o755)
        for name in found:
            if name not in hidden:
                (links / name).symlink_to(os.path.join(entry, name))
        entries.append(str(links))
    return os.pathsep.join(entries)


def absent(name: str) -> list[str]:
    """Which programs of one are not on PATH."""
    return [program for program in OPTIONAL[name].programs if shutil.which(program) is None]


def packages(*, installed: bool) -> list[str]:
    """The name and the package of Debian of each that is absent; of those only that `.ci/run`
    installs, or of all.
    """
    return [
        f"{name} {optional.package}"
        for name, optional in OPTIONAL.items()
        if (optional.ci or not installed) and optional.package and absent(name)
    ]


def main() -> None:
    match sys.argv[1:]:
        case ["install" | "absent" as which]:
            found = packages(installed=which == "install")
            print("".join(f"{line}\n" for line in found), end="")
        case ["hide", directory, path]:
            print(hide(Path(directory), path))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
