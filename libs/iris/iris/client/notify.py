"""The methods of `Client` about notifications: targets, subscriptions, and what became of messages.

Source: docs/design/notifications.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iris.client.http.api import GatewayApi
from iris.client.http.transport import UrlQuery, in_path
from iris_core.views.notify import (
    DeliveryView,
    MessageFormat,
    NotifyTargetView,
    SubscriptionView,
)

_TARGETS = "/v1/notify/targets"
_SUBSCRIPTIONS = "/v1/notify/subscriptions"


class NotifyApi(GatewayApi):
    """Typed requests about notifications."""

    def notify_targets(self) -> Iterator[NotifyTargetView]:
        """The targets that one's jobs may name: one's own, and shared ones."""
        return self.pages(_TARGETS, NotifyTargetView)

    def notify_target(self, name: str, *, user: str = "") -> NotifyTargetView:
        """A target by its name. ``user``: whose, for admins. Raises NotFound."""
        return self.get(f"{_TARGETS}/{in_path(name)}", NotifyTargetView, _of(user))

    def add_notify_target(
        self,
        name: str,
        *,
        webhook: str = "",
        smtp: str = "",
        secret: str = "",
        message_format: MessageFormat = "cloudevents",
        shared: bool = False,
    ) -> NotifyTargetView:
        """Add a target, which is sent a test message: a ``webhook``, whose messages are signed with
        the ``secret`` of 16 bytes or more, or an address of mail.

        A target whose test message was not delivered is ``unverified``, with the reason as its
        ``detail``, and gets nothing until `test_notify_target` succeeds. ``shared``: for everybody's
        jobs; admins only. Raises Rejected, Conflict.
        """
        body = {
            "name": name,
            "webhook": webhook,
            "smtp": smtp,
            "secret": secret,
            "format": message_format,
            "shared": shared,
        }
        return self.post(_TARGETS, NotifyTargetView, body=body)

    def remove_notify_target(self, name: str, *, user: str = "") -> None:
        """Remove a target, its subscriptions, and what waits for it. Raises NotFound."""
        self.change("DELETE", f"{_TARGETS}/{in_path(name)}", dict, query=_of(user))

    def test_notify_target(self, name: str, *, user: str = "") -> NotifyTargetView:
        """Send a test message; the target is active when that was delivered. Raises NotFound."""
        return self.post(f"{_TARGETS}/{in_path(name)}/test", NotifyTargetView, query=_of(user))

    def pause_notify_target(self, name: str, *, user: str = "") -> NotifyTargetView:
        """Send nothing until it is resumed; messages wait. Raises NotFound."""
        return self.post(f"{_TARGETS}/{in_path(name)}/pause", NotifyTargetView, query=_of(user))

    def resume_notify_target(self, name: str, *, user: str = "") -> NotifyTargetView:
        """Send messages again. Raises NotFound, Conflict when it was never verified."""
        return self.post(f"{_TARGETS}/{in_path(name)}/resume", NotifyTargetView, query=_of(user))

    def notify_subscriptions(self) -> Iterator[SubscriptionView]:
        """One's subscriptions; of an admin everybody's."""
        return self.pages(_SUBSCRIPTIONS, SubscriptionView)

    def subscribe(
        self,
        to: str,
        on: Sequence[str],
        *,
        job: str = "",
        project: str = "",
        all_mine: bool = False,
    ) -> SubscriptionView:
        """Tell a target of a job that has not ended, of the jobs in a project and below it, or of all
        of one's jobs.

        ``on``: words such as ``failed``, ``ended``, ``waiting_1h``. Raises Rejected, Conflict.
        """
        body = {"to": to, "on": list(on), "job": job, "project": project, "all_mine": all_mine}
        return self.post(_SUBSCRIPTIONS, SubscriptionView, body=body)

    def unsubscribe(self, subscription: str) -> None:
        """End a subscription by its id. Raises NotFound."""
        self.change("DELETE", f"{_SUBSCRIPTIONS}/{in_path(subscription)}", dict)

    def deliveries(
        self, *, target: str | None = None, status: str | None = None
    ) -> Iterator[DeliveryView]:
        """Messages to one's targets, newest first."""
        query: UrlQuery = {"target": target, "status": status}
        return self.pages("/v1/notify/deliveries", DeliveryView, query)


def _of(user: str) -> UrlQuery:
    return {"user": user or None}
