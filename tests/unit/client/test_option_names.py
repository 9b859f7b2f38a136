"""Unknown options of the SDK are refused with the nearest name, before anything is sent."""

import pytest

from iris import AsyncClient, Client, InvalidOption
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
    assert refusal(client.run, ["true"], if_exist="keep") == "run() has no option 'if_exist'; did you mean 'if_exists'?"
    assert refusal(client.map, len, ["a"], memry="1GiB") == "map() has no option 'memry'; did you mean 'memory'?"
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
        answering(lambda _: Said(200, {**pages.DEPLOYMENT, "available": 2, "version": 4})) as server,
        Client(server.url) as client,
    ):
        chat = client.deployment("chat")
        assert refusal(chat.update, replicsa=2) == "update() has no option 'replicsa'; did you mean 'replicas'?"
        assert [request.method for request in server.requests] == ["GET"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constraints": "a=b"}, "constraints is a list, not 'a=b'; write constraints=['a=b']"),
        ({"prefer": "fast"}, "prefer is a list, not 'fast'; write prefer=['fast']"),
        ({"ports": "http"}, "ports is a list, not 'http'; write ports=['http']"),
        ({"constraints": [5]}, "5 is not a constraint; write key=value, key!=value, key, !key, key>=3 or 'key in a,b'"),
        ({"env": ["A=1"]}, "env is a dictionary, not ['A=1']; write for example env={'KEY': 'value'}"),
        ({"labels": "a=b"}, "labels is a dictionary, not 'a=b'; write for example labels={'KEY': 'value'}"),
    ],
)
def test_an_option_of_the_wrong_shape_is_refused_in_words(client, options, message):
    for call in (lambda: client.run(["true"], **options), lambda: client.deploy(["true"], "chat", **options)):
        with pytest.raises(InvalidOption) as refused:
            call()
        assert str(refused.value) == message


def test_a_value_of_the_wrong_type_is_refused_in_words(client):
    with pytest.raises(InvalidOption) as refused:
        client.run(["true"], replicas="three")
    assert str(refused.value) == "replicas must be a whole number, not a string"
