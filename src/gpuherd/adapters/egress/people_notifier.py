"""Messages for people: Slack, Discord, ntfy, mail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpuherd import __version__
from gpuherd.adapters.egress.smtp_client import SmtpMailer
from gpuherd.adapters.egress.webhook_sender import (
    REPLY_MAX_BYTES,
    judge,
    no_reply,
    safe_detail,
)
from gpuherd.domain.egress_policy import BlockedTarget
from gpuherd.domain.webhooks.people_message import (
    Notice,
    discord_message,
    mail_text,
    notice_of,
    ntfy_message,
    slack_message,
)
from gpuherd.domain.webhooks.webhook_endpoint import (
    EndpointKind,
    WebhookEndpoint,
    mail_address,
    split_ntfy_topic,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.egress_port import EgressFailure, EgressHttp, FailureCategory
from gpuherd.ports.webhook_port import DeliveryResult

TIMEOUT_S = 15.0
_HEADERS = {"content-type": "application/json; charset=utf-8", "user-agent": f"gpuherd/{__version__}"}
_NO_MAIL_SERVER = "this server has no mail server to send by: GPUHERD_SMTP_URL is not set"


class ChatAndMailNotifier:
    """Implements `Notifier`; without a mailer, mail waits for one."""

    def __init__(self, http: EgressHttp, clock: Clock, mailer: SmtpMailer | None = None):
        self._http = http
        self._clock = clock
        self._mailer = mailer

    @property
    def sends_mail(self) -> bool:
        return self._mailer is not None

    async def notify(
        self, endpoint: WebhookEndpoint, event_id: str, body: bytes, now: datetime
    ) -> DeliveryResult:
        notice = notice_of(json.loads(body))
        try:
            if endpoint.kind is EndpointKind.EMAIL:
                return await self._mail(mail_address(endpoint.url), event_id, notice)
            url, message = _chat_message(endpoint, notice)
        except BlockedTarget as blocked:
            # It was judged when it was made; but a row of a database can be changed.
            category = FailureCategory.BLOCKED_TARGET.value
            return DeliveryResult(False, None, category, safe_detail(blocked.reason), None, 0.0)
        return await self._post(url, message, endpoint.kind, now)

    async def _mail(self, address: str, event_id: str, notice: Notice) -> DeliveryResult:
        if self._mailer is None:
            return DeliveryResult(False, None, "not_configured", _NO_MAIL_SERVER, None, 0.0)
        return await self._mailer.send(address, event_id, mail_text(notice), notice.at, notice.type)

    async def _post(
        self, url: str, message: Mapping[str, Any], kind: EndpointKind, now: datetime
    ) -> DeliveryResult:
        started = self._clock.monotonic()
        try:
            reply = await self._http.request(
                "POST",
                url,
                headers=_HEADERS,
                body=json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(),
                timeout_s=TIMEOUT_S,
                max_bytes=REPLY_MAX_BYTES,
            )
        except EgressFailure as failure:
            return no_reply(failure, self._clock.monotonic() - started)
        return judge(reply, now, kind)


def _chat_message(endpoint: WebhookEndpoint, notice: Notice) -> tuple[str, dict[str, Any]]:
    """Return where to post, and what."""
    match endpoint.kind:
        case EndpointKind.SLACK:
            return endpoint.url, slack_message(notice)
        case EndpointKind.DISCORD:
            return endpoint.url, discord_message(notice)
        case EndpointKind.NTFY:
            server, topic = split_ntfy_topic(endpoint.url)
            return server, ntfy_message(notice, topic)
        case _:
            raise ValueError(f"an endpoint of the kind {endpoint.kind} is no place where people read")
