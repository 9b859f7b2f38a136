"""The version of a build: the release, with the commit of a checkout."""

from pathlib import Path

import pytest

from iris_service.version import build_version

COMMIT = "94e69443a1b2c3d4e5f60718293a4b5c6d7e8f90"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / "libs" / "iris_service" / "iris_service").mkdir(parents=True)
    (root / "pyproject.toml").write_text("")
    return root


def version_of(root: Path) -> str:
    return build_version("0.1.0", root / "libs" / "iris_service" / "iris_service" / "version.py")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_branch_is_its_commit(checkout: Path):
    write(checkout / ".git" / "HEAD", "ref: refs/heads/main\n")
    write(checkout / ".git" / "refs" / "heads" / "main", COMMIT + "\n")
    assert version_of(checkout) == "0.1.0+g94e69443"


def test_a_packed_branch_is_its_commit(checkout: Path):
    write(checkout / ".git" / "HEAD", "ref: refs/heads/main\n")
    packed = f"# pack-refs with: peeled\n{'0' * 40} refs/heads/mainline\n{COMMIT} refs/heads/main\n"
    write(checkout / ".git" / "packed-refs", packed)
    assert version_of(checkout) == "0.1.0+g94e69443"


def test_a_commit_that_is_checked_out_by_itself(checkout: Path):
    write(checkout / ".git" / "HEAD", COMMIT + "\n")
    assert version_of(checkout) == "0.1.0+g94e69443"


def test_a_worktree_has_the_branches_of_its_repository(checkout: Path, tmp_path: Path):
    own = tmp_path / "main" / ".git" / "worktrees" / "w1"
    write(checkout / ".git", f"gitdir: {own}\n")
    write(own / "HEAD", "ref: refs/heads/w1\n")
    write(own / "commondir", "../..\n")
    write(tmp_path / "main" / ".git" / "refs" / "heads" / "w1", COMMIT)
    assert version_of(checkout) == "0.1.0+g94e69443"


@pytest.mark.parametrize("head", ["", "ref: refs/heads/gone\n", "rubbish\n", None])
def test_what_is_no_repository_has_the_release_alone(checkout: Path, head: str | None):
    if head is not None:
        write(checkout / ".git" / "HEAD", head)
    assert version_of(checkout) == "0.1.0"


def test_an_installed_package_has_the_release_alone(tmp_path: Path):
    write(tmp_path / ".git" / "HEAD", COMMIT)
    module = tmp_path / "lib" / "site-packages" / "iris_service" / "version.py"
    assert build_version("0.1.0", module) == "0.1.0"
