"""The section ``[notifier]`` of `iris.toml`."""

from __future__ import annotations

import ipaddress
from typing import Literal

import msgspec

from iris_core.limits import PositiveFloat
from iris_notifier.addresses import InternetNetwork
from iris_service.settings import BadSetting, ReadFile

SmtpTls = Literal["starttls", "tls", "none"]


class NotifierSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where messages may go, and how often they are tried.

    Attributes:
        url: the public address of the gateway, for links in messages; empty: messages have none.
        allow: networks besides public addresses that webhooks may reach, for example 10.1.0.0/16.
        smtp: ``HOST:PORT`` of the mail server; empty: no target has an address of mail.
        smtp_from: the sender of mails.
        smtp_user: of the account there; empty: without authentication.
        smtp_password_file: path of the file with its password.
        smtp_tls: starttls, tls from the start, or none.
        timeout_s: how long one try may take.
        retry_first_s: the pause after the first try that failed, doubled after each.
        retry_longest_s: the longest pause.
        retry_for_s: a message is given up so long after it was made, and its target is paused.
        storm_s: of one word, a target gets five messages in so long, and then a summary.
    """

    url: str = ""
    allow: tuple[str, ...] = ()
    smtp: str = ""
    smtp_from: str = ""
    smtp_user: str = ""
    smtp_password_file: ReadFile = ""
    smtp_tls: SmtpTls = "starttls"
    timeout_s: PositiveFloat = 10.0
    retry_first_s: PositiveFloat = 5.0
    retry_longest_s: PositiveFloat = 3600.0
    retry_for_s: PositiveFloat = 86400.0
    storm_s: PositiveFloat = 60.0

    def check_forms(self) -> None:
        """Raises BadSetting for a network, or an address of the mail server, that is none."""
        for text in self.allow:
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                raise BadSetting(f"[notifier] allow: {error}") from None
        host, _, port = self.smtp.rpartition(":")
        if self.smtp and not (host and port.isdigit()):
            raise BadSetting(f"[notifier] smtp: {self.smtp!r} is not HOST:PORT")
        if self.smtp and "@" not in self.smtp_from:
            raise BadSetting("[notifier] smtp_from: mails need the address of a sender")

    @property
    def networks(self) -> tuple[InternetNetwork, ...]:
        """The networks of ``allow``."""
        return tuple(ipaddress.ip_network(text) for text in self.allow)
