import os
import stat
import subprocess
from pathlib import Path

import pytest

from iris.client.http.address import ClusterFile, find_gateway, leads_to, read_token
from iris.client.http.contexts import Context, Contexts, contexts_path, load_contexts, save_contexts
from iris.client.problems import InvalidOption, NoGateway
from iris.cluster.paths import ClusterPaths, make_token, write_cluster
from iris_core.access.token_file import line_of, parse_tokens, token_of


@pytest.fixture
def environ(tmp_path):
    """All five sources say something; a test takes some away."""
    environ = {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "IRIS_DATA": str(tmp_path / "data"),
        "IRIS_URL": "http://url:1",
        "IRIS_GATEWAY_URL": "http://inside:1",
    }
    save_contexts(
        contexts_path(environ), Contexts("home", {"home": Context("http://home:1", "secret")})
    )
    layout = ClusterPaths(tmp_path / "data")
    layout.prepare()
    write_cluster(layout, ClusterFile("http://127.0.0.1:9", "nats://x", {"state": [1]}))
    return environ


def test_the_first_source_that_says_something_wins(environ):
    found = [find_gateway("http://said:1", environ=environ).url]
    for name in ("IRIS_URL", "IRIS_GATEWAY_URL", "XDG_CONFIG_HOME"):
        found.append(find_gateway(environ=environ).url)
        environ[name] = "" if name.startswith("IRIS") else environ[name] + "/none"
    found.append(find_gateway(environ=environ).url)

    assert found == [
        "http://said:1",
        "http://url:1",
        "http://inside:1",
        "http://home:1",
        "http://127.0.0.1:9",
    ]


def test_a_context_that_is_named_wins_over_the_environment(environ):
    assert find_gateway(context="home", environ=environ).url == "http://home:1"


def test_the_token_of_the_environment_wins_over_the_contexts(environ):
    environ |= {"IRIS_URL": "", "IRIS_GATEWAY_URL": ""}

    assert find_gateway(environ=environ).token == "secret"
    assert find_gateway(environ=environ | {"IRIS_TOKEN": "other"}).token == "other"


def test_without_any_source_it_says_what_to_do(tmp_path):
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "IRIS_DATA": str(tmp_path)}

    with pytest.raises(NoGateway, match="iris up"):
        find_gateway(environ=environ)


def test_a_context_nobody_knows_is_refused(environ):
    with pytest.raises(InvalidOption, match="'nowhere'"):
        find_gateway(context="nowhere", environ=environ)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8080", "ftp://x", "http://", "http://x:99999", "http://x:y"]
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(InvalidOption, match=r"http://127\.0\.0\.1:8080"):
        find_gateway(url, environ={})


def test_contexts_are_kept_privately_for_they_hold_tokens(environ):
    assert stat.S_IMODE(contexts_path(environ).stat().st_mode) == 0o600


def test_a_damaged_file_of_contexts_is_named(tmp_path):
    path = tmp_path / "contexts.json"
    path.write_text("{")

    with pytest.raises(InvalidOption, match=str(path)):
        load_contexts(path)


def test_a_task_reads_its_token_anew_and_a_person_sends_the_one_they_name(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("iristask_second\n")
    task = {
        "IRIS_GATEWAY_URL": "http://gate:8080",
        "IRIS_TOKEN": "iristask_first",
        "IRIS_TOKEN_FILE": str(file),
    }
    address = find_gateway(environ=task)
    assert address.bearer() == "iristask_second"
    file.write_text("iristask_third\n")
    assert address.bearer() == "iristask_third"
    file.unlink()
    assert address.bearer() == "iristask_first"
    assert find_gateway(environ=task | {"IRIS_TOKEN": "mine"}).bearer() == "mine"


def test_a_token_may_be_in_a_file_alone(tmp_path: Path):
    (tmp_path / "token").write_text("secret\n")
    environ = {"IRIS_URL": "http://gate:8080", "IRIS_TOKEN_FILE": str(tmp_path / "token")}
    assert find_gateway(environ=environ).bearer() == "secret"


@pytest.fixture
def local(tmp_path: Path) -> ClusterPaths:
    """A cluster that is up and wants tokens."""
    paths = ClusterPaths(tmp_path / "data")
    paths.prepare()
    make_token(paths, "ann")
    write_cluster(paths, cluster_file(paths, os.getpid()))
    return paths


def of(paths: ClusterPaths) -> dict[str, str]:
    """The variables of a user of that cluster who has no contexts."""
    return {"IRIS_DATA": str(paths.data), "XDG_CONFIG_HOME": str(paths.data)}


def cluster_file(paths: ClusterPaths, supervisor: int) -> ClusterFile:
    return ClusterFile(
        "http://127.0.0.1:9", "nats://x", {"supervisor": [supervisor]}, token_file=str(paths.token)
    )


def test_the_token_of_the_local_cluster_is_found_by_its_address(local: ClusterPaths):
    environ, secret = of(local), read_token(str(local.token))
    assert secret.startswith("iris_")
    for given in (
        {},
        {"IRIS_URL": "http://127.0.0.1:9"},
        {"IRIS_GATEWAY_URL": "http://127.0.0.1:9/"},
    ):
        assert find_gateway(environ=environ | given).bearer() == secret
    for url in ("http://127.0.0.1:9", "http://localhost:9/"):
        found = find_gateway(url, environ=environ)
        assert (found.url, found.bearer()) == ("http://127.0.0.1:9", secret)
    assert find_gateway(environ=environ | {"IRIS_TOKEN": "mine"}).bearer() == "mine"


SPELLINGS = ("127.0.0.1:9", "localhost:9", "LocalHost:9", "[::1]:9", "[::]:9", "0.0.0.0:9")
REACHED = {
    "127.0.0.1:9": {"127.0.0.1:9", "localhost:9", "LocalHost:9"},
    "[::1]:9": {"[::1]:9", "localhost:9", "LocalHost:9"},
    "0.0.0.0:9": set(SPELLINGS),
    "[::]:9": set(SPELLINGS),
    "10.0.0.1:9": set(),
}


@pytest.mark.parametrize("listens", REACHED)
def test_a_local_cluster_is_known_by_every_spelling_of_its_address(listens: str):
    of_it = {url for url in SPELLINGS if leads_to(f"http://{url}", f"http://{listens}")}

    assert of_it == REACHED[listens]


@pytest.mark.parametrize(
    "other",
    [
        "http://127.0.0.1:8",
        "https://127.0.0.1:9",
        "http://127.0.0.1",
        "http://127.0.0.1:9/iris",
        "http://[::1:9",
        "http://127.0.0.1.example:9",
        "127.0.0.1:9",
        "",
    ],
)
def test_another_address_is_not_taken_for_the_local_cluster(other: str):
    assert not leads_to(other, "http://127.0.0.1:9")


@pytest.mark.parametrize("name", ["IRIS_TOKEN", "IRIS_TOKEN_FILE"])
@pytest.mark.parametrize("empty", ["", " \n"])
def test_an_empty_token_is_not_replaced_by_another(local: ClusterPaths, name: str, empty: str):
    environ = of(local) | {name: empty}
    assert find_gateway(environ=environ).bearer() == ""
    save_contexts(
        contexts_path(environ), Contexts("work", {"work": Context("http://work:1", "secret")})
    )
    assert (find_gateway(environ=environ).url, find_gateway(environ=environ).bearer()) == (
        "http://work:1",
        "",
    )


def test_the_token_of_the_local_cluster_is_sent_nowhere_else(local: ClusterPaths):
    environ = of(local)
    for url in (
        "http://127.0.0.1:90",
        "http://127.0.0.1",
        "http://gate:9",
        "https://127.0.0.1:9",
        "http://localhost",
    ):
        assert find_gateway(url, environ=environ).bearer() == ""


def test_a_context_of_the_local_cluster_needs_no_token_of_its_own(
    local: ClusterPaths, tmp_path: Path
):
    environ = {"IRIS_DATA": str(local.data), "XDG_CONFIG_HOME": str(tmp_path)}
    for token, found in (("", read_token(str(local.token))), ("mine", "mine")):
        save_contexts(
            contexts_path(environ), Contexts("here", {"here": Context("http://127.0.0.1:9", token)})
        )
        assert find_gateway(environ=environ).bearer() == found


def test_the_token_of_a_cluster_that_is_not_up_is_sent_nowhere(local: ClusterPaths):
    """Whoever listens at its address now is somebody else."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    write_cluster(local, cluster_file(local, ended.pid))
    for url in (None, "http://127.0.0.1:9"):
        found = find_gateway(url, environ=of(local))
        assert (found.url, found.bearer()) == ("http://127.0.0.1:9", "")


def test_a_cluster_keeps_its_token_and_the_lines_of_others(local: ClusterPaths):
    secret = local.token.read_text()
    local.token_file.write_text(
        local.token_file.read_text() + line_of(token_of("bob", "user", "s-bob"))
    )
    make_token(local, "ann")
    assert local.token.read_text() == secret
    callers = [token.caller for token in parse_tokens(local.token_file.read_text())]
    assert [(one.user, one.role) for one in callers] == [("ann", "admin"), ("bob", "user")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (local.token, local.token_file)} == {
        0o600
    }
    local.token.unlink()
    make_token(local, "ann")
    assert len(parse_tokens(local.token_file.read_text())) == 3


def test_a_user_without_a_home_reaches_the_address_that_is_given(monkeypatch: pytest.MonkeyPatch):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert find_gateway(environ={"IRIS_GATEWAY_URL": "http://gate:8080"}).url == "http://gate:8080"
