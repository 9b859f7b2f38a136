"""A directory as one file: the same files always give the same bytes, so a bundle is known by its
SHA-256.

What ``.gitignore`` and ``.irisignore`` name is not packed, as git has it, and never version
control, caches and virtual environments (`SKIPPED`); links that lead outside and special files are refused. Out of
scope: sending it (`client`), unpacking it (the worker). Source:
    docs/design/reliability.md#security, gitignore(5).
"""

from __future__ import annotations

import gzip
import hashlib
import heapq
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pathspec import GitIgnoreSpec

from iris.client.problems import InvalidOption
from iris_core.spec.jobs import PACKAGE_FILES, PackageList
from iris_core.units import BYTES, counted

SKIPPED = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "__pycache__",
        ".venv",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".DS_Store",
    }
)
_GIT = ".gitignore"
_OWN = ".irisignore"
"""In one directory, patterns of the later file override those of the earlier one."""
_LEAVE_OUT = "; name it in .irisignore if tasks do not need it"
_CHUNK = 1 << 20
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Bundle:
    """A packed directory.

    Attributes:
        digest: the hex SHA-256 of the packed bytes. files, bytes: how many files it holds, and
            their size.
        packed_bytes: size of the archive.
        left_out: paths that were not packed, in order; a directory ends with a slash, and its
            content is not listed.
        biggest: the largest files, with their sizes, largest first.
        packages: the file in it that lists the packages it needs, see
            `iris_core.spec.jobs.Environment`.
    """

    digest: str
    files: int
    bytes: int
    packed_bytes: int
    left_out: tuple[str, ...]
    biggest: tuple[tuple[int, str], ...]
    packages: PackageList

    def __str__(self) -> str:
        words = f"{counted(self.files, 'file')}, {BYTES.show(self.bytes)} ({BYTES.show(self.packed_bytes)} packed)"
        if not self.left_out:
            return words
        more = len(self.left_out) - _SHOWN
        others = f" and {more} more" if more > 0 else ""
        return f"{words}; left out: {', '.join(self.left_out[:_SHOWN])}{others}"

    @property
    def biggest_files(self) -> str:
        """``data/a.bin 200 MiB, data/b.bin 10 MiB``."""
        return ", ".join(f"{name} {BYTES.show(size)}" for size, name in self.biggest)


class IgnoreFiles:
    """The ignore files that apply to ``root`` and below it: its own, nested ones, and those above
    it in its repository.

    Those above count unless they exclude ``root`` itself: then it was named in spite of them. As in
    git, ``.gitignore`` reaches into no repository inside of its own, and leaves out nothing that is
    tracked; ``.irisignore`` does both. Tracked files are those of the program `git`, if there is
    one.
    """

    def __init__(self, root: Path) -> None:
        self._root = self._top = Path(os.path.abspath(root))
        self._specs: dict[tuple[Path, str], GitIgnoreSpec | None] = {}
        self._repositories: dict[Path, Path] = {}
        self._tracked: dict[Path, frozenset[Path]] = {}
        self._of_tracked: set[Path] = set()
        """Ignored directories that are packed for what is tracked below them, and only that."""
        self._top = self._repository(self._root)
        ways = [path for path in (self._root, *self._root.parents) if self._top in path.parents]
        if any(self._is_left_out(path) for path in ways):
            self._top = self._root

    def left_out(self, directory: str | Path, names: Iterable[str]) -> set[str]:
        """Those of a directory's entries that are not packed."""
        here = Path(os.path.abspath(directory))
        return {name for name in names if name in SKIPPED or self._is_left_out(here / name)}

    def _is_left_out(self, path: Path) -> bool:
        by = self._pattern_file(path)
        if by == "" and path.parent in self._of_tracked:
            by = _GIT
        if by != _GIT:
            return by == _OWN
        repository = self._repository(path.parent)
        if path not in self._files_of(repository):
            return True
        if path.is_dir() and not path.is_symlink() and self._repository(path) == repository:
            self._of_tracked.add(path)
        return False

    def _pattern_file(self, path: Path) -> str:
        """The ignore file whose pattern excludes a path: of the deepest directory with a matching
        one; empty when none does.
        """
        slash = "/" if path.is_dir() and not path.is_symlink() else ""
        repository = self._repository(path.parent)
        is_inside = True
        for base in path.parents:
            for name in (_OWN, _GIT) if is_inside else (_OWN,):
                spec = self._spec(base, name)
                text = path.relative_to(base).as_posix() + slash
                found = None if spec is None else spec.check_file(text).include
                if found is not None:
                    return name if found else ""
            is_inside = is_inside and base != repository
            if base == self._top:
                break
        return ""

    def _repository(self, directory: Path) -> Path:
        """The repository of a directory; outside of one what is uploaded."""
        if directory not in self._repositories:
            above = (one for one in (directory, *directory.parents) if (one / ".git").exists())
            self._repositories[directory] = next(above, self._root)
        return self._repositories[directory]

    def _files_of(self, repository: Path) -> frozenset[Path]:
        """What is tracked in a repository, with the directories of that."""
        if repository not in self._tracked:
            files = [repository / name for name in tracked_files(repository)]
            parents = {one for file in files for one in file.parents if repository in one.parents}
            self._tracked[repository] = frozenset({*files, *parents})
        return self._tracked[repository]

    def _spec(self, directory: Path, name: str) -> GitIgnoreSpec | None:
        """The patterns of one of a directory's ignore files. Raises InvalidOption."""
        if (directory, name) not in self._specs:
            texts = [_text(directory / name)]
            if name == _GIT:
                texts.insert(0, _text(directory / ".git" / "info" / "exclude"))
            lines = [line for text in texts for line in text.splitlines()]
            try:
                spec = GitIgnoreSpec.from_lines(lines) if lines else None
            except ValueError as error:
                raise InvalidOption(
                    f"{directory}: a pattern to ignore is invalid: {error}"
                ) from None
            self._specs[directory, name] = spec
        return self._specs[directory, name]


def tracked_files(repository: Path) -> list[str]:
    """The files and submodules in the index of a repository; none without git, or where it does
    not work.
    """
    git = shutil.which("git")
    if git is None:
        return []
    command = [git, "-C", str(repository), "-c", "core.fsmonitor=false", "ls-files", "-z"]
    foreign = {name for name in os.environ if name.startswith("GIT_")}
    environ = {name: value for name, value in os.environ.items() if name not in foreign}
    try:
        done = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError:
        return []
    names = done.stdout if done.returncode == 0 else b""
    return [os.fsdecode(name) for name in names.split(b"\0") if name]


def _text(path: Path) -> str:
    """The text of an ignore file; empty when there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return ""


def pack_directory(
    root: Path,
    into: IO[bytes],
    *,
    everything: bool = False,
    added: Mapping[str, Path] | None = None,
) -> Bundle:
    """Write ``root`` as tar.gz to ``into`` (a seekable file), and the ``added`` files below these
    names.

    Owners, times and all permission bits but the owner's execute bit are left out. ``everything``:
    also what ignore files name. Raises InvalidOption when ``root`` is not a directory or holds what
    cannot be packed.
    """
    if not root.is_dir():
        raise InvalidOption(f"{root} is not a directory")
    rules = None if everything else IgnoreFiles(root)
    left_out = list[str]()
    sizes = list[tuple[int, str]]()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=into, mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in list_files(root, rules, left_out):
            entry = add_entry(archive, root, path)
            if entry.isreg():
                sizes.append((entry.size, entry.name))
        for name, path in (added or {}).items():
            add_entry(archive, path.parent, path, name)
            sizes.append((path.stat().st_size, name))
    into.seek(0)
    digest = hashlib.sha256()
    while chunk := into.read(_CHUNK):
        digest.update(chunk)
    length = into.tell()
    into.seek(0)
    return Bundle(
        digest.hexdigest(),
        len(sizes),
        sum(size for size, _ in sizes),
        length,
        left_out=tuple(left_out),
        biggest=tuple(heapq.nlargest(_SHOWN, sizes)),
        packages=packages_of({name for _, name in sizes}),
    )


def packages_of(names: Container[str]) -> PackageList:
    """The file that lists the packages of a project with these files; empty when there is none."""
    return next(
        packages
        for packages, files in PACKAGE_FILES.items()
        if all(name in names for name in files)
    )


def list_files(
    root: Path, rules: IgnoreFiles | None, left_out: list[str], below: str = ""
) -> Iterator[Path]:
    """Every directory, file and link below ``root`` in one fixed order, parents first, without
    ignored ones: their paths are added to ``left_out``, with ``below`` in front.
    """
    entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    ignored = rules.left_out(root, [entry.name for entry in entries]) if rules is not None else ()
    for entry in entries:
        is_directory = entry.is_dir(follow_symlinks=False)
        name = f"{below}{entry.name}{'/' if is_directory else ''}"
        if entry.name in ignored:
            left_out.append(name)
            continue
        yield Path(entry.path)
        if is_directory:
            yield from list_files(Path(entry.path), rules, left_out, name)


def add_entry(archive: tarfile.TarFile, root: Path, path: Path, name: str = "") -> tarfile.TarInfo:
    """Add one file, directory or inner link. Raises InvalidOption for anything else."""
    found = path.lstat()
    entry = tarfile.TarInfo(name or path.relative_to(root).as_posix())
    if stat.S_ISREG(found.st_mode):
        entry.size = found.st_size
        entry.mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
        with path.open("rb") as file:
            archive.addfile(entry, file)
        return entry
    if stat.S_ISDIR(found.st_mode):
        entry.type = tarfile.DIRTYPE
        entry.mode = 0o755
    elif stat.S_ISLNK(found.st_mode):
        entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, inner_link(root, path)
    else:
        raise InvalidOption(
            f"{path} is neither a file nor a directory and cannot be uploaded{_LEAVE_OUT}"
        )
    archive.addfile(entry)
    return entry


def inner_link(root: Path, path: Path) -> str:
    """The target of a link. Raises InvalidOption when it is absolute or outside ``root``."""
    target = os.readlink(path)
    inside = os.path.normpath(path.parent.relative_to(root) / target)
    if os.path.isabs(target) or inside == ".." or inside.startswith("../"):
        refusal = f"{path} links to {target}, outside of {root}; links may not leave the directory"
        raise InvalidOption(refusal + _LEAVE_OUT)
    return target
