"""Unknown options of the SDK are refused with the nearest name, before anything is sent."""

import pytest

from iris import AsyncClient, Client, Executor, InvalidOption
from tests.support import pages
from tests.support.answers import Said, answering

MISTAKES = "run() has no option 'cpus'; did you mean 'cpu'?\nrun() has no option 'nane'; did you mean 'name'?"


@pytest.fixture
def client():
    """A client of a gateway that must not be asked."""
    with Client("http://127.0.0.1:9") as client:
        yield client


def refusal(call, *words, **options):
    with pytest.raises(TypeError) as refused:
        call(*words, **options)
    return str(refused.value)


def test_every_method_names_the_nearest_option(client, tmp_path):
    assert refusal(client.run, ["true"], cpus=4, nane="x", workdir=tmp_path) == MISTAKES
    assert (
        refusal(client.run, ["true"], if_exist="keep")
        == "run() has no option 'if_exist'; did you mean 'if_exists'?"
    )
    assert (
        refusal(client.map, len, ["a"], memry="1GiB")
        == "map() has no option 'memry'; did you mean 'memory'?"
    )
    assert refusal(client.spec, ["true"], {"zzz": 1}) == "spec() has no option 'zzz'"
    assert (
        refusal(client.deploy, ["serve"], "chat", probe_pth="/x")
        == "deploy() has no option 'probe_pth'; did you mean 'probe_path'?"
    )


async def test_the_asynchronous_client_refuses_the_same():
    async with AsyncClient("http://127.0.0.1:9") as client:
        with pytest.raises(TypeError) as refused:
            await client.run(["true"], cpus=4, nane="x")
    assert str(refused.value) == MISTAKES


def test_an_update_names_the_nearest_option():
    with (
        answering(
            lambda _: Said(200, {**pages.DEPLOYMENT, "available": 2, "version": 4})
        ) as server,
        Client(server.url) as client,
    ):
        chat = client.deployment("chat")
        assert (
            refusal(chat.update, replicsa=2)
            == "update() has no option 'replicsa'; did you mean 'replicas'?"
        )
        assert [request.method for request in server.requests] == ["GET"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constraints": "a=b"}, "constraints is a list, not 'a=b'; write constraints=['a=b']"),
        ({"prefer": "fast"}, "prefer is a list, not 'fast'; write prefer=['fast']"),
        ({"ports": "http"}, "ports is a list, not 'http'; write ports=['http']"),
        (
            {"constraints": [5]},
            "5 is not a constraint; write key=value, key!=value, key, !key, key>=3 or 'key in a,b'",
        ),
        (
            {"env": ["A=1"]},
            "env is a dictionary, not ['A=1']; write for example env={'KEY': 'value'}",
        ),
        (
            {"labels": "a=b"},
            "labels is a dictionary, not 'a=b'; write for example labels={'KEY': 'value'}",
        ),
    ],
)
def test_an_option_of_the_wrong_shape_is_refused_in_words(client, options, message):
    for call in (
        lambda: client.run(["true"], **options),
        lambda: client.deploy(["true"], "chat", **options),
    ):
        with pytest.raises(InvalidOption) as refused:
            call()
        assert str(refused.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": "three"}, "replicas must be a whole number, not a string"),
        ({"env": {"A": 1}}, "a value of env must be a string, not a whole number"),
        ({"env": {1: "A"}}, "a key of env must be a string, not a whole number"),
        ({"labels": {"a": None}}, "a value of labels must be a string, not null"),
        ({"band": "x"}, "band cannot be 'x' (one of: production, interactive, batch)"),
        (
            {"on_timeout": "stop", "timeout": "1s"},
            "on_timeout cannot be 'stop' (one of: kill, requeue)",
        ),
    ],
)
def test_a_value_of_the_wrong_type_or_word_is_refused_in_words(client, options, message):
    with pytest.raises(InvalidOption) as refused:
        client.run(["true"], **options)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": 3}, "a map takes no replicas: it has a task for each item"),
        ({"array": "0-3"}, "a map takes no array: it has a task for each item"),
        ({"each_line": "list"}, "a map takes no each_line: it has a task for each item"),
        ({"order": "x"}, "order must be one of items, done, not 'x'"),
        ({"kwargs": 3}, "kwargs is a dictionary, not 3; write for example kwargs={'scale': 2}"),
        ({"chunksize": 2.5}, "chunksize must be a whole number of at least 1, not 2.5"),
        ({"retries": 1.5}, "retries must be a whole number of at least 0, not 1.5"),
        ({"retries": -1}, "retries must be a whole number of at least 0, not -1"),
        ({"chunksize": 0}, "chunksize must be a whole number of at least 1, not 0"),
        ({"lookahead": 0}, "lookahead must be a whole number of at least 1, not 0"),
        (
            {"retries": 1, "max_retries_failure": 2},
            "retries and max_retries_failure are the same: leave one of them out",
        ),
    ],
)
def test_a_map_refuses_what_it_cannot_do(client, options, message):
    for items in (["a"], [], iter(["a"])):
        with pytest.raises(InvalidOption) as refused:
            client.map(len, items, **options)
        assert str(refused.value) == message


def test_a_map_is_of_a_function_and_an_iterable(client):
    with pytest.raises(TypeError, match="calls a function, not None"):
        client.map(None, ["a"])
    with pytest.raises(TypeError, match="needs at least one iterable"):
        client.map(len)


@pytest.mark.parametrize("name", ["kwargs", "chunksize", "order", "return_exceptions", "lookahead"])
def test_an_executor_refuses_options_of_a_map_only(client, name):
    with pytest.raises(
        InvalidOption, match=f"^an executor takes no {name}: each of its calls is a task$"
    ):
        Executor(client, **{name: 1})


def test_an_executor_refuses_what_it_does_not_know_at_once(client):
    assert (
        refusal(Executor, client, memry="1GiB")
        == "Executor() has no option 'memry'; did you mean 'memory'?"
    )
    assert (
        refusal(Executor, client, max_workers=4)
        == "Executor() has no option 'max_workers'; use 'max_parallel'"
    )
    assert (
        refusal(Executor, 4)
        == "client is a Client, not 4; how many calls run at a time is max_parallel="
    )
