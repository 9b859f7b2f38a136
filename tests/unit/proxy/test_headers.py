"""Header fields that the proxy passes on, adds and removes."""

import pytest

from iris_proxy.http.headers import cookie, end_to_end, to_client, to_route

HERE = {
    "deployment": "chat",
    "peer": "10.1.1.1",
    "scheme": "http",
    "host": "front",
    "trusted": False,
}
ADDED = [
    ("X-Forwarded-For", "10.1.1.1"),
    ("X-Forwarded-Proto", "http"),
    ("X-Forwarded-Host", "front"),
    ("X-Forwarded-Prefix", "/d/chat"),
]


def test_hop_by_hop_fields_are_dropped_and_the_rest_kept_in_order():
    fields = [
        ("Set-Cookie", "a=1"),
        ("Connection", "close, X-Mine"),
        ("x-mine", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Authorization", "x"),
        ("Proxy-Connection", "x"),
        ("TE", "trailers"),
        ("Trailer", "X"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "h2c"),
        ("Set-Cookie", "b=2"),
    ]
    assert end_to_end(fields) == [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]


def test_nobody_can_have_the_host_dropped():
    assert end_to_end([("Host", "a"), ("Connection", "Host")]) == [("Host", "a")]


def test_bytes_that_are_not_utf_8_are_sent_as_meant():
    assert end_to_end([("X", b"caf\xe9".decode("utf-8", "surrogateescape")), ("Y", "é")]) == [
        ("X", "café"),
        ("Y", "é"),
    ]


def test_framing_is_not_copied_and_who_sent_it_is_added():
    fields = [("Host", "front"), ("Content-Length", "5"), ("Expect", "100-continue"), ("A", "1")]
    assert to_route(fields, **HERE) == [("Host", "front"), ("A", "1"), *ADDED]


def test_what_a_stranger_says_of_where_it_came_from_is_replaced():
    fields = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("Forwarded", "for=6.6.6.6"),
        ("X-Forwarded-Port", "1"),
    ]
    assert to_route(fields, **HERE) == ADDED


@pytest.mark.parametrize("trusted", [False, True])
def test_what_services_take_for_a_field_of_the_proxy_is_dropped(trusted: bool):
    alike = [
        "X_Forwarded_For",
        "X-Forwarded_Proto",
        "X_FORWARDED-HOST",
        "Proxy_Authorization",
        "Transfer_Encoding",
    ]
    fields = [*((name, "evil") for name in alike), ("my_field", "1")]
    assert to_route(fields, **{**HERE, "trusted": trusted}) == [("my_field", "1"), *ADDED]


def test_a_service_cannot_mark_its_answers_as_the_proxys():
    assert to_client([("Iris-Proxy", "1"), ("iris-proxy", "1"), ("X", "1")]) == [("X", "1")]


def test_what_a_trusted_proxy_says_is_kept_and_continued():
    fields = [
        ("X-Forwarded-For", "7.7.7.7"),
        ("X-Forwarded-For", "8.8.8.8"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Prefix", "/api"),
        ("X-Forwarded-Port", "443"),
        ("Forwarded", "for=7.7.7.7"),
    ]
    assert to_route(fields, **{**HERE, "trusted": True}) == [
        ("Forwarded", "for=7.7.7.7"),
        ("X-Forwarded-For", "7.7.7.7, 8.8.8.8, 10.1.1.1"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "front"),
        ("X-Forwarded-Prefix", "/api/d/chat"),
        ("X-Forwarded-Port", "443"),
    ]


def test_a_withheld_authorization_stays_here_and_others_go_on():
    ours, theirs = ("Authorization", "bearer secret"), ("authorization", "Bearer sk-123")
    assert to_route([ours, theirs], **HERE, withheld=lambda value: value == ours[1]) == [
        theirs,
        *ADDED,
    ]


def test_a_cookie_is_found_among_others():
    assert [cookie(header, "b") for header in ("a=1; b=2; c=3", "b=", "bb=1", "")] == [
        "2",
        "",
        "",
        "",
    ]


@pytest.mark.parametrize("name", ["iris_token", "__Host-iris_token"])
def test_the_cookie_of_the_dashboard_stays_here_and_other_cookies_go_on(name: str):
    both = [
        ("Cookie", f"{name}=secret; theme=dark"),
        ("Cookie", f"{name}=secret"),
        ("cookie", "a=1; b=2"),
    ]
    assert to_route(both, **HERE) == [("Cookie", "theme=dark"), ("cookie", "a=1; b=2"), *ADDED]


@pytest.mark.parametrize("name", ["iris_token", "__Host-iris_token"])
def test_a_service_cannot_set_the_cookie_of_the_dashboard(name: str):
    sets = [f"{name}=x; Path=/", f" {name} =x", f"={name}=x", name]
    kept = [
        ("Set-Cookie", "theme=dark; Path=/"),
        ("set-cookie", f"x={name}"),
        ("Set-Cookie", f"my_{name}=x"),
    ]
    assert to_client([*(("Set-Cookie", one) for one in sets), *kept]) == kept
