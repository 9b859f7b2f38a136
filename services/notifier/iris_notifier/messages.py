"""What is sent: CloudEvents, texts for Slack, sentences for mail, and signatures. Pure.

Source: CloudEvents 1.0, JSON format; docs/design/notifications.md#messages.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Literal

import msgspec

from iris_core import codec
from iris_core.units import counted
from iris_core.views.notify import JobMessage, JobSummary, MessageFormat
from iris_notifier.records import DeliveryRecord, TargetRecord

CLOUD_EVENT = "application/cloudevents+json"
SIGNATURE = "Iris-Signature"
TEST = "iris.test"
SUMMARY = "iris.job.summary"


class CloudEvent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The envelope of a message. The subject of a test is left out."""

    specversion: Literal["1.0"]
    id: str
    source: str
    type: str
    subject: str = ""
    time: datetime
    datacontenttype: Literal["application/json"]
    data: msgspec.Raw


def type_of(word: str) -> str:
    """``iris.job.failed``; of a word of time without its amount: ``iris.job.waiting``."""
    return f"iris.job.{word.partition('_')[0]}"


def body(delivery: DeliveryRecord, form: MessageFormat, cluster: str) -> tuple[bytes, str]:
    """The body of a message to a webhook, and its media type."""
    if form == "text":
        return sentence(delivery, cluster).encode(), "text/plain; charset=utf-8"
    if form == "slack":
        return codec.to_json({"text": sentence(delivery, cluster)}), "application/json"
    event = CloudEvent(
        specversion="1.0",
        datacontenttype="application/json",
        id=delivery.id,
        source=f"/clusters/{cluster}",
        type=delivery.type,
        subject=delivery.job,
        time=datetime.fromtimestamp(delivery.created_ms / 1000, UTC),
        data=msgspec.Raw(delivery.data),
    )
    return codec.to_json(event), CLOUD_EVENT


def headers(sent: bytes, media_type: str, secret: str, now_s: int) -> Mapping[str, str]:
    """The fields of a request to a webhook. The signature is of the time and of the body, so that a
    receiver can refuse a message that somebody has kept.
    """
    digest = hmac.new(secret.encode(), f"{now_s}.".encode() + sent, hashlib.sha256).hexdigest()
    return {"Content-Type": media_type, SIGNATURE: f"t={now_s},v1={digest}"}


def mail(
    delivery: DeliveryRecord, target: TargetRecord, sender: str, domain: str, cluster: str
) -> EmailMessage:
    """A message to one address; its id is that of the event, so that a second copy is known."""
    mail_message = EmailMessage()
    mail_message["From"] = sender
    mail_message["To"] = target.smtp
    mail_message["Subject"] = f"[{cluster}] {_title(delivery)}"
    mail_message["Message-ID"] = f"<{_plain(delivery.id)}.{_plain(target.name)}@{domain}>"
    mail_message["Date"] = datetime.fromtimestamp(delivery.created_ms / 1000, UTC)
    mail_message.set_content(sentence(delivery, cluster) + "\n")
    return mail_message


def sentence(delivery: DeliveryRecord, cluster: str) -> str:
    """What has happened, for a person."""
    if delivery.type == TEST:
        return f"This is a test message of the cluster {cluster}: {delivery.target} works."
    if delivery.type == SUMMARY:
        examples = codec.from_json(delivery.data, JobSummary).examples
        return f"{_title(delivery)}; among them {', '.join(examples)}"
    data = codec.from_json(delivery.data, JobMessage)
    facts = [_title(delivery)]
    if data.exit_code is not None and data.state != "succeeded":
        facts.append(f"exit code {data.exit_code}")
    if data.error:
        facts.append(data.error)
    counts = ", ".join(f"{number:,} {state}" for state, number in data.tasks.items() if number)
    if sum(data.tasks.values()) > 1:
        facts.append(f"tasks: {counts}")
    return f"{'; '.join(facts)}{f' ({data.url})' if data.url else ''}"


def _title(delivery: DeliveryRecord) -> str:
    if delivery.type == TEST:
        return "test message"
    if delivery.type == SUMMARY:
        return f"{counted(delivery.jobs, 'more job')}: {in_words(delivery.on)}"
    return f"job {delivery.job} of {delivery.user}: {in_words(delivery.on)}"


def in_words(word: str) -> str:
    """A word of a rule, in words: ``has waited for 1h``."""
    kind, _, amount = word.partition("_")
    return {
        "started": "started",
        "waiting": f"has waited for {amount}",
        "time": f"has used {amount} % of its time limit",
    }.get(kind, kind)


def _plain(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in text)
