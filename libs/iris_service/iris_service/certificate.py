"""The certificate that a listener shows, read again when its files change. Out of scope: TLS
towards NATS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Iterable
from pathlib import Path

from iris_service.settings import BadSetting

log = logging.getLogger(__name__)

_LOOK_S = 5.0


class Certificate:
    """A certificate with its chain, and its key, in PEM files.

    Attributes:
        context: what a listener is given; a new certificate is for connections that begin after it.
    """

    def __init__(self, section: str, cert: str, key: str) -> None:
        """Raises BadSetting when the files cannot be used."""
        self._section = section
        self._files = (Path(cert), Path(key or cert))
        self.context = self._read()
        self._seen = self._state()

    def look(self) -> None:
        """Take up files that have changed; those that cannot be used change nothing."""
        seen = self._state()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            # files that are being replaced may not belong together yet, and would spoil the context
            self._read()
            self.context.load_cert_chain(*self._files)
        except (BadSetting, OSError, ValueError) as error:
            log.warning("%s; the certificate stays as it was", error)
            return
        log.info("the certificate has changed")

    async def keep_reading(self) -> None:
        """Look every now and then, for ever."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look()

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(*self._files)
        except (OSError, ValueError) as error:
            files = " and ".join(dict.fromkeys(map(str, self._files)))
            raise BadSetting(
                f"[{self._section}] tls_cert, tls_key: {files} cannot be used: {error}; put back a copy of it"
            ) from error
        return context

    def _state(self) -> list[tuple[int, int]]:
        """What differs once a file has been written or replaced."""
        found = []
        for file in self._files:
            try:
                stat = file.stat()
            except OSError:
                continue
            found.append((stat.st_mtime_ns, stat.st_ino))
        return found


def expiry_s(path: str) -> float:
    """When the first certificate of a PEM file expires (Unix, s). Raises OSError, ValueError."""
    from cryptography import x509  # large, and needed by few

    return x509.load_pem_x509_certificate(Path(path).read_bytes()).not_valid_after_utc.timestamp()


def expiries_s(paths: Iterable[str]) -> dict[str, float]:
    """When the certificate of each file expires; files that cannot be read are left out."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            found[path] = expiry_s(path)
    return found


def read_certificate(section: str, cert: str, key: str) -> Certificate | None:
    """The certificate of a section's settings, None for plain HTTP. Raises BadSetting."""
    if key and not cert:
        raise BadSetting(f"[{section}] tls_key: there is a key and no tls_cert")
    return Certificate(section, cert, key) if cert else None
