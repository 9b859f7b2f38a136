"""Which addresses a webhook may reach."""

from __future__ import annotations

import ipaddress

import pytest

from iris_notifier.addresses import forbidden, url_mistake

ALLOWED = (ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd00:1::/32"))


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34", "10.1.2.3", "2606:2800:220:1::1", "fd00:1::5", "::ffff:10.1.0.9"],
)
def test_public_and_listed_addresses_may_be_reached(address: str) -> None:
    assert forbidden([address], ALLOWED) == ""


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "10.2.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254"),
        *("0.0.0.0", "224.0.0.1", "255.255.255.255", "100.64.0.1", "198.18.0.1", "240.0.0.1"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "fd00:2::1"),
        *("::ffff:127.0.0.1", "::ffff:10.2.0.1", "2002:7f00:1::", "64:ff9b::a9fe:a9fe"),
    ],
)
def test_others_may_not(address: str) -> None:
    assert forbidden([address], ALLOWED) == address


def test_one_forbidden_address_of_several_is_enough() -> None:
    assert forbidden(["93.184.216.34", "127.0.0.1"], ()) == "127.0.0.1"


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("https://hooks.example.org/x?y=1", False),
        ("http://hooks.example.org:8080", False),
        ("http://2130706433/", False),
        ("ftp://hooks.example.org", True),
        ("https:///x", True),
        ("hooks.example.org", True),
        ("https://u:p@hooks.example.org", True),
        ("https://u@hooks.example.org", True),
        ("https://hooks.example.org/#part", True),
        ("https://hooks.example.org/#", True),
        ("https://hooks.example.org/a b", True),
        ("https://hooks.example.org/\n", True),
        ("https://hooks.example.org:99999", True),
        ("https://hooks.example.org:0", True),
        ("https://[::1", True),
        ("https://example.org/" + "x" * 2100, True),
        ("", True),
    ],
)
def test_urls(url: str, wrong: bool) -> None:
    assert bool(url_mistake(url)) is wrong
