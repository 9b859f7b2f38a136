"""How a virtual environment is built: the script, and the key under which the result is kept. Pure.

The key holds all that the result depends on: the files, the setup command, the interpreter, the
platform, the job's variables that the build sees, and the job's owner, so that nobody can give
another user a prepared environment. Out of scope: running the script (builder), where the result is
    kept (store).
Source: docs/adr/0042-a-build-is-a-process-of-its-attempt.md.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from iris_core import codec
from iris_core.messages.state_worker import TaskTemplate
from iris_core.spec.jobs import PACKAGE_FILES, Environment, PackageList

_SEEN = re.compile(r"(PIP|UV)_|SSL_CERT_|(https?|all|no)_proxy\Z", re.IGNORECASE)
_PLAIN_OPTIONS = (
    "--hash",
    "--index-url",
    "--extra-index-url",
    "-i ",
    "--pre",
    "--only-binary",
    "--no-binary",
)
_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2")
_FORMAT = 1
"""Part of the key: grows when the same plan gives another result."""


class CannotBuild(Exception):
    """The owner asks for what the bundle does not have; the text says what."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What this host builds with.

    Attributes:
        python: path of the interpreter of the requested version; empty when the host has none.
        platform: operating system, C library and machine.
    """

    python: str
    platform: str


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """A build.

    Attributes:
        key: of the result. title: what is built, for a person.
        command: run with the environment's directory as ``VIRTUAL_ENV``, in a directory with
            ``files``.
        variables: those of the job that it sees.
        files: of the bundle; None: all of them.
        any_python: no version was requested, so that a host whose Python makes no environment is
            broken.
    """

    key: str
    title: str
    command: tuple[str, ...]
    variables: Mapping[str, str]
    files: tuple[str, ...] | None
    any_python: bool


def plan_build(
    template: TaskTemplate, wanted: Environment, texts: Mapping[str, bytes], tools: Tools
) -> BuildPlan:
    """The build of a job's environment.

    Args:
        texts: content of the files that list the packages.

    Raises CannotBuild.
    """
    for name in PACKAGE_FILES[wanted.packages]:
        if name not in texts:
            raise CannotBuild(f"{name} is not in the bundle")
    variables = {name: value for name, value in sorted(template.env.items()) if _SEEN.match(name)}
    whole = bool(wanted.setup) or uses_other_files(wanted.packages, texts)
    content = template.bundle if whole else texts
    parts = (_FORMAT, template.user, wanted, tools.python, tools.platform, variables, content)
    command = (
        "/bin/sh",
        "-c",
        "\n".join(script(wanted)),
        "build",
        f"python{wanted.python or 3}",
        wanted.setup,
    )
    files = None if whole else PACKAGE_FILES[wanted.packages]
    key = hashlib.sha256(codec.pack(parts)).hexdigest()
    return BuildPlan(
        key, title(wanted), command, variables, files=files, any_python=not wanted.python
    )


def title(wanted: Environment) -> str:
    """``requirements.txt, python 3.12``."""
    what = wanted.packages or ("its setup command" if wanted.setup else "an empty environment")
    return f"{what}, python {wanted.python}" if wanted.python else what


def script(wanted: Environment) -> Iterator[str]:
    """The lines of a shell script; its arguments are the interpreter, the setup command, and the
    directory to run in.

    It finds out itself whether uv and the interpreter are there, because a confined process sees
    less than the worker. What it prints is standard error.
    """
    yield "set -e"
    yield "exec >&2"
    yield 'cd "$3"'
    yield 'has() { command -v "$1" >/dev/null; }'
    # its path: by its name it would take itself for that of the environment
    yield 'python=$(command -v "$1" || true)'
    yield 'lacks() { echo "iris: this host has $1"; exit 127; }'
    yield f"echo 'iris: builds the environment: {title(wanted)}'"
    yield 'test -n "$python" || has uv || lacks "neither $1 nor uv, which could install it"'
    yield from _PACKAGES[wanted.packages](wanted)
    if wanted.setup:
        yield '/bin/sh -c "$2"'
    yield "echo 'iris: the environment is built'"


def _uv_venv(wanted: Environment) -> str:
    return f'uv venv --quiet --no-project{" --seed" if wanted.setup else ""} --python "$1" "$VIRTUAL_ENV"'


def _venv(wanted: Environment) -> str:
    """A setup command finds pip in the environment, which takes seconds."""
    return f'"$python" -m venv{"" if wanted.setup else " --without-pip"} "$VIRTUAL_ENV"'


def _nothing(wanted: Environment) -> Iterator[str]:
    yield f'if test -n "$python"; then {_venv(wanted)}; else {_uv_venv(wanted)}; fi'


def _lock(wanted: Environment) -> Iterator[str]:
    yield 'has uv || lacks "no uv, which uv.lock needs; install it there, or send a requirements.txt"'
    yield _uv_venv(wanted)
    yield "uv sync --frozen --no-progress --no-install-project --no-editable --no-dev"


def _requirements(wanted: Environment) -> Iterator[str]:
    """Without uv, pip of the host installs if it can do so for another interpreter, else one in the
    environment.
    """
    install = (
        "install --disable-pip-version-check --no-input --progress-bar off -r requirements.txt"
    )
    yield "if has uv; then"
    yield f"  {_uv_venv(wanted)}"
    yield "  uv pip install --no-progress -r requirements.txt"
    yield f'elif "$python" -c "{_HAS_PIP}" 2>/dev/null; then'
    yield f"  {_venv(wanted)}"
    yield f'  "$python" -m pip --python "$VIRTUAL_ENV/bin/python" {install}'
    yield "else"
    yield '  "$python" -m venv "$VIRTUAL_ENV"'
    yield f"  python -m pip {install}"
    yield "fi"


_HAS_PIP = "import pip; assert int(pip.__version__.split('.')[0]) > 22"
_PACKAGES: dict[PackageList, Callable[[Environment], Iterator[str]]] = {
    "": _nothing,
    "uv.lock": _lock,
    "requirements.txt": _requirements,
}


def uses_other_files(packages: PackageList, texts: Mapping[str, bytes]) -> bool:
    """Whether a list of packages names files of the bundle; then the result depends on all of
    it.
    """
    if packages == "uv.lock":
        return _lock_uses_files(texts["uv.lock"].decode(errors="replace"))
    lines = texts.get(packages, b"").decode(errors="replace").splitlines()
    return any(map(_names_file, (line.strip() for line in lines)))


def _names_file(line: str) -> bool:
    """Whether a line of a requirements file may name a file: all but plain requirements and known
    options do.
    """
    requirement = line.partition(" #")[0].strip()
    if not requirement or requirement.startswith(("#", *_PLAIN_OPTIONS)):
        return False
    if requirement.startswith(("-", ".")) or "file:" in requirement:
        return True
    return "://" not in requirement and ("/" in requirement or requirement.endswith(_ARCHIVES))


def _lock_uses_files(text: str) -> bool:
    """Whether a package of a uv.lock comes from a directory other than the project's own, which is
    not installed.
    """
    try:
        sources = [package.get("source", {}) for package in tomllib.loads(text).get("package", ())]
    except (tomllib.TOMLDecodeError, AttributeError):
        return True  # uv will say what is wrong
    return not all(
        source.get("editable") == "." or source.get("virtual") == "." or _is_remote(source)
        for source in sources
    )


def _is_remote(source: Mapping[str, str]) -> bool:
    return any("://" in str(source.get(kind, "")) for kind in ("registry", "git", "url"))
