"""Sends one message: to a webhook or to an address of mail.

A webhook's name is resolved once a try, judged, and connected to as it was resolved, so what answers
is what was judged. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import aiohttp
import aiosmtplib
from aiohttp.abc import AbstractResolver, ResolveResult

from iris_core.limits import clipped
from iris_notifier import messages
from iris_notifier.addresses import forbidden, url_mistake
from iris_notifier.records import DeliveryRecord, TargetRecord
from iris_notifier.settings import NotifierSettings

log = logging.getLogger(__name__)

_DETAIL = 200
_READ_BYTES = 1024
"""Of an answer, for the log."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """What came of one try.

    Attributes:
        is_delivered: the other side has taken it. is_gone: it wants nothing any more.
        detail: why it was not delivered, or the answer.
    """

    is_delivered: bool
    detail: str
    is_gone: bool = False


class MessageSender(Protocol):
    """What messages are sent with."""

    async def send(self, delivery: DeliveryRecord, target: TargetRecord) -> SendResult:
        """Try once. Raises nothing."""
        ...

    async def refusal(self, webhook: str) -> str:
        """Why nothing is sent to a URL, for a person; empty: it may be."""
        ...

    @property
    def sends_mail(self) -> bool:
        """Whether there is a mail server."""
        ...


class ForbiddenAddress(Exception):
    """A name resolves to an address that no webhook may reach."""


class _Resolved(AbstractResolver):
    """Answers with the addresses that were judged."""

    def __init__(self, found: Sequence[ResolveResult]) -> None:
        self._found = list(found)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return self._found

    async def close(self) -> None:
        return None


class Sender:
    """Sends over HTTP and SMTP.

    Args:
        cluster: its name, the source of events. now_s: the wall clock, for signatures.
    """

    def __init__(
        self, settings: NotifierSettings, cluster: str, now_s: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._networks = settings.networks
        self._cluster = cluster
        self._now_s = now_s

    @property
    def sends_mail(self) -> bool:
        return bool(self._settings.smtp)

    async def refusal(self, webhook: str) -> str:
        if mistake := url_mistake(webhook):
            return mistake
        try:
            await self._resolve(webhook)
        except ForbiddenAddress as error:
            return str(error)
        except OSError as error:
            return f"the name {urlsplit(webhook).hostname} cannot be resolved: {_words(error)}"
        return ""

    async def send(self, delivery: DeliveryRecord, target: TargetRecord) -> SendResult:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                if target.webhook:
                    return await self._post(delivery, target)
                return await self._mail(delivery, target)
        except TimeoutError:
            return SendResult(False, f"no answer within {self._settings.timeout_s:g} s")
        except (OSError, aiohttp.ClientError, aiosmtplib.SMTPException, ValueError) as error:
            return SendResult(False, _words(error))
        except ForbiddenAddress as error:
            return SendResult(False, str(error))

    # ── HTTP ──────────────────────────────────────────────────────────────────────────────────────

    async def _post(self, delivery: DeliveryRecord, target: TargetRecord) -> SendResult:
        found = await self._resolve(target.webhook)
        sent, media_type = messages.body(delivery, target.format, self._cluster)
        fields = messages.headers(sent, media_type, target.secret, int(self._now_s()))
        connector = aiohttp.TCPConnector(resolver=_Resolved(found), force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(
                target.webhook, data=sent, headers=fields, allow_redirects=False
            ) as answer,
        ):
            said = await answer.content.read(_READ_BYTES)
        if 200 <= answer.status < 300:
            return SendResult(True, f"{answer.status}")
        word = "a redirect, which is not followed" if 300 <= answer.status < 400 else ""
        text = word or said.decode(errors="replace").strip()
        detail = clipped(f"answered {answer.status}: {text}".rstrip(": "), _DETAIL)
        return SendResult(False, detail, is_gone=answer.status == 410)

    async def _resolve(self, url: str) -> list[ResolveResult]:
        """The addresses of a URL's host. Raises ForbiddenAddress, OSError."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(where[0]) for *_, where in found]
        if wrong := forbidden(addresses, self._networks):
            raise ForbiddenAddress(
                f"{host} is {wrong}, which is neither a public address nor in [notifier] allow"
            )
        return [
            ResolveResult(
                hostname=host, host=address, port=port, family=family, proto=protocol, flags=0
            )
            for (family, _, protocol, _, _), address in zip(found, addresses, strict=True)
        ]

    # ── SMTP ──────────────────────────────────────────────────────────────────────────────────────

    async def _mail(self, delivery: DeliveryRecord, target: TargetRecord) -> SendResult:
        settings = self._settings
        if not settings.smtp:
            return SendResult(False, "this cluster has no mail server ([notifier] smtp)")
        host, _, port = settings.smtp.rpartition(":")
        sender = settings.smtp_from
        domain = sender.rpartition("@")[2].rstrip(">")
        message = messages.mail(delivery, target, sender, domain, self._cluster)
        password = None
        if path := settings.smtp_password_file:
            password = (await asyncio.to_thread(Path(path).read_text)).strip()
        _, answer = await aiosmtplib.send(
            message,
            hostname=host.strip("[]"),
            port=int(port),
            username=settings.smtp_user or None,
            password=password,
            use_tls=settings.smtp_tls == "tls",
            start_tls=settings.smtp_tls == "starttls",
            timeout=settings.timeout_s,
        )
        return SendResult(True, clipped(answer, _DETAIL))


def _words(error: BaseException) -> str:
    return clipped(str(error) or type(error).__name__, _DETAIL)
