"""Messages for people: Slack, Discord, ntfy, mail."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as SMTP_LINES
from typing import Any

from aiosmtplib import (
    SMTP,
    SMTPAuthenticationError,
    SMTPDataError,
    SMTPException,
    SMTPRecipientRefused,
    SMTPResponseException,
    SMTPSenderRefused,
)

from gpuherd import __version__
from gpuherd.adapters.egress.webhook_sender import (
    REPLY_MAX_BYTES,
    judge,
    no_reply,
    safe_detail,
)
from gpuherd.domain.egress_policy import BlockedTarget
from gpuherd.domain.webhooks.people_message import (
    MailText,
    Notice,
    discord_message,
    mail_text,
    notice_of,
    ntfy_message,
    slack_message,
)
from gpuherd.domain.webhooks.webhook_endpoint import (
    EndpointKind,
    MailSecurity,
    SmtpServer,
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


# As a whole; some servers let strangers wait before they greet them.
MAIL_TIMEOUT_S = 30.0
MAILS_AT_ONCE = 2
# RFC 3463: this mailbox does not exist, has moved, or is switched off.
_MAILBOX_GONE = re.compile(r"5\.(?:1\.(?:1|2|3|6|10)|2\.1)\b")
_TOO_BUSY = 421


@dataclass(frozen=True)
class _MailAnswer:
    """How an exchange ended, in our words."""

    category: str
    detail: str
    code: int | None = None


class SmtpMailer:
    """Hands mail in at the operator's mail server, one mail a connection.

    The operator chooses the server, which may be inside; only the address comes from an endpoint.
    """

    def __init__(
        self,
        server: SmtpServer,
        sender: str,
        tls: ssl.SSLContext,
        clock: Clock,
        timeout_s: float = MAIL_TIMEOUT_S,
    ):
        self._server = server
        self._sender = sender
        self._tls = tls
        self._clock = clock
        self._timeout_s = timeout_s
        # A lookup of the server's name cannot be cancelled, and holds one of the loop's few threads.
        self._turns = asyncio.Semaphore(MAILS_AT_ONCE)

    async def send(
        self, address: str, event_id: str, text: MailText, at: datetime, event_type: str
    ) -> DeliveryResult:
        """Try once to hand a mail in. Each answer of the server and each failure is a result."""
        message = _message(self._sender, address, event_id, text, at, event_type)
        async with self._turns:
            started = self._clock.monotonic()
            answer = await self._hand_in(address, bytes(message))
            elapsed_s = self._clock.monotonic() - started
        accepted = answer.category == "ok"
        return DeliveryResult(accepted, answer.code, answer.category, answer.detail, None, elapsed_s)

    async def _hand_in(self, address: str, message: bytes) -> _MailAnswer:
        smtp: SMTP | None = None
        # From here on the server may have taken the mail, even if its answer is lost.
        is_handed_over = False
        try:
            async with asyncio.timeout(self._timeout_s):
                smtp = await self._connect()
                await smtp.mail(self._sender)
                await smtp.rcpt(address)
                is_handed_over = True
                code, _ = await smtp.data(message)
            return _MailAnswer("ok", "the mail server took it", code)
        except SMTPResponseException as error:
            return _refusal(error)
        except (OSError, SMTPException, ValueError) as error:
            if is_handed_over:
                lost = "the answer of the mail server was lost; it may have taken the mail"
                return _MailAnswer("unknown", lost)
            return _failure(error)
        finally:
            if smtp is not None:
                await _leave(smtp)

    async def _connect(self) -> SMTP:
        its = self._server
        smtp = SMTP(
            hostname=its.host,
            port=its.port,
            # Not the name of this machine.
            local_hostname=self._sender.rpartition("@")[2],
            timeout=None,
            use_tls=its.security is MailSecurity.TLS,
            start_tls=its.security is MailSecurity.STARTTLS,
            tls_context=None if its.security is MailSecurity.PLAIN else self._tls,
            username=None if its.password is None else its.user,
            password=None if its.password is None else its.password.reveal(),
        )
        await smtp.connect()
        return smtp


async def _leave(smtp: SMTP) -> None:
    """Say goodbye. The fate of the mail is settled, so no failure matters."""
    with suppress(OSError, SMTPException):
        async with asyncio.timeout(1.0):
            await smtp.quit()
    smtp.close()


def _failure(error: Exception) -> _MailAnswer:
    """Return what an exchange without an answer means. The error's own text may quote the conversation."""
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLError):
        return _MailAnswer(FailureCategory.TLS.value, "the TLS handshake with the mail server failed")
    if isinstance(error, TimeoutError):
        return _MailAnswer(FailureCategory.TIMEOUT.value, "the mail server took too long")
    if isinstance(cause, socket.gaierror):
        return _MailAnswer(FailureCategory.DNS.value, "the name of the mail server could not be resolved")
    if isinstance(cause, ConnectionRefusedError):
        return _MailAnswer(FailureCategory.REFUSED.value, "the mail server refused the connection")
    if isinstance(error, SMTPException) and not isinstance(error, OSError):
        return _MailAnswer(
            FailureCategory.TLS.value, "the mail server offers no STARTTLS, or no way to log in"
        )
    return _MailAnswer(FailureCategory.RESET.value, "the connection to the mail server broke")


def _refusal(error: SMTPResponseException) -> _MailAnswer:
    code = error.code
    if code == _TOO_BUSY:
        return _MailAnswer("throttled", f"the mail server answered {code}", code)
    if not 400 <= code <= 599:
        return _MailAnswer(FailureCategory.PROTOCOL.value, "the mail server gave an answer that is not SMTP")
    category = f"smtp_{code // 100}xx"
    match error:
        case SMTPAuthenticationError():
            return _MailAnswer(category, "the mail server refused the user or the password", code)
        case SMTPSenderRefused():
            return _MailAnswer(category, f"the mail server answered {code} to the sender's address", code)
        case SMTPRecipientRefused() if code >= 500 and _MAILBOX_GONE.match(error.message):
            return _MailAnswer("gone", f"the mail server answered {code}: there is no such mailbox", code)
        case SMTPRecipientRefused():
            return _MailAnswer(category, f"the mail server answered {code} to the address", code)
        case SMTPDataError() if code >= 500:
            return _MailAnswer("rejected", f"the mail server answered {code} to this mail", code)
        case _:
            return _MailAnswer(category, f"the mail server answered {code}", code)


def _message(
    sender: str, address: str, event_id: str, text: MailText, at: datetime, event_type: str
) -> EmailMessage:
    """Return the mail: the same bytes at every try, so that a repeat can be told by its Message-ID."""
    message = EmailMessage(SMTP_LINES)
    message["From"] = Address("gpuherd", addr_spec=sender)
    message["To"] = Address(addr_spec=address)
    message["Subject"] = text.subject
    message["Date"] = at
    message["Message-ID"] = f"<{event_id}@{sender.rpartition('@')[2]}>"
    # No holiday notices in answer.
    message["Auto-Submitted"] = "auto-generated"
    message["X-Gpuherd-Event"] = event_type
    message.set_content(text.body, cte="quoted-printable")
    return message
