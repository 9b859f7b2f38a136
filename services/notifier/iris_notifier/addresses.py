"""Which addresses a webhook may reach. Pure.

A message goes where its user says, from inside the operator's network: so only to public addresses,
and to those that the operator lists. Source: docs/design/notifications.md#addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

InternetAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
InternetNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_MAX_URL = 2048


def url_mistake(url: str) -> str:
    """What is wrong with a URL of a webhook by itself, for a person; empty: nothing."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "this is not a URL"
    if parts.scheme not in ("http", "https"):
        return "a webhook has a URL that begins with https:// or http://"
    if not parts.hostname:
        return "the URL names no host"
    if parts.username is not None or parts.password is not None:
        return "the URL may hold no user and no password"
    if "#" in url:
        return "the URL may have no fragment"
    if not url.isprintable() or " " in url or not url.isascii() or len(url) > _MAX_URL:
        return f"a URL has at most {_MAX_URL:,} printable ASCII characters"
    return "the URL has port 0" if port == 0 else ""


def forbidden(found: Sequence[str], allowed: Iterable[InternetNetwork]) -> str:
    """The first of the addresses to which a name resolves that no webhook may reach; empty: each
    may be reached.
    """
    networks = tuple(allowed)
    return next((text for text in found if not _is_allowed(_meant(text), networks)), "")


def _meant(text: str) -> InternetAddress:
    """An address; of an IPv6 address that stands for an IPv4 one, that one."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _is_allowed(address: InternetAddress, networks: Iterable[InternetNetwork]) -> bool:
    if any(address in network for network in networks if network.version == address.version):
        return True
    return address.is_global and not (
        address.is_multicast
        or address.is_reserved
        or address.is_loopback
        or address.is_link_local
        or address.is_unspecified
    )
