"""The address a service listens on: forms that no socket can have are refused as settings."""

import pytest

from iris_service.listening import read_address
from iris_service.settings import BadSetting


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:0", ("10.0.0.1", 0)),
        (":8080", ("127.0.0.1", 8080)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert read_address("gateway", text) == address


@pytest.mark.parametrize(
    "port", ["²", "٣", "65536", pytest.param("9" * 5000, id="5000 digits"), "-1", "http", ""]
)
def test_a_port_that_no_socket_can_have_is_refused(port: str) -> None:
    with pytest.raises(
        BadSetting, match=r"\[gateway\] http: not host:port with a port of at most 65535"
    ):
        read_address("gateway", f"127.0.0.1:{port}")
