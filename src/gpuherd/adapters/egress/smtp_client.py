"""Hands mail in at the operator's mail server, with the standard library in a few threads of its own.

The server is the operator's choice and may well be inside; only the address comes from an endpoint.
"""

from __future__ import annotations

import asyncio
import re
import smtplib
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP

from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.people_message import MailText
from gpuherd.domain.webhooks.webhook_endpoint import MailSecurity, SmtpServer
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.egress_port import FailureCategory
from gpuherd.ports.webhook_port import DeliveryResult

# As a whole; some servers let strangers wait before they greet them.
TIMEOUT_S = 30.0


# For one step, so that a thread ends by itself when nobody waits for it any more.
STEP_TIMEOUT_S = 20.0


# As many as deliveries go to one host at a time, and as many tests.
THREADS_MAX = 4


# RFC 3463: this mailbox does not exist, has moved, or is switched off.
_MAILBOX_GONE = re.compile(rb"5\.(?:1\.(?:1|2|3|6|10)|2\.1)\b")


_TOO_BUSY = 421


@dataclass(frozen=True)
class _MailAnswer:
    """How an exchange ended, in our words."""

    category: str
    detail: str
    code: int | None = None


class SmtpMailer:
    """Sends one mail a connection; at most `THREADS_MAX` at once."""

    def __init__(self, server: SmtpServer, sender: str, tls: ssl.SSLContext, clock: Clock):
        self._server = server
        self._sender = sender
        self._tls = tls
        self._clock = clock
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="smtp")

    async def send(
        self, address: str, event_id: str, text: MailText, at: datetime, event_type: str
    ) -> DeliveryResult:
        """Try once to hand a mail in; whatever the server or the network does is a result."""
        message = _message(self._sender, address, event_id, text, at, event_type)
        exchange = _Exchange(self._server, self._sender, address, bytes(message), self._tls)
        started = self._clock.monotonic()
        answer = await self._run(exchange)
        elapsed_s = self._clock.monotonic() - started
        accepted = answer.category == "ok"
        return DeliveryResult(accepted, answer.code, answer.category, answer.detail, None, elapsed_s)

    async def close(self) -> None:
        """Begin no more exchanges; those under way end by their own timeouts."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, exchange: _Exchange) -> _MailAnswer:
        running = asyncio.get_running_loop().run_in_executor(self._threads, exchange.run)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await asyncio.shield(running)
        except TimeoutError:
            return exchange.lost(_MailAnswer(FailureCategory.TIMEOUT.value, "the mail server took too long"))
        finally:
            exchange.abort()


class _Exchange:
    """One conversation with the server, in a thread; `abort` ends it from outside."""

    def __init__(self, server: SmtpServer, sender: str, address: str, message: bytes, tls: ssl.SSLContext):
        self._server = server
        self._sender = sender
        self._address = address
        self._message = message
        self._tls = tls
        self._smtp: smtplib.SMTP | None = None
        self._aborted = False
        # From here on the server may have taken the mail, whatever we hear of it.
        self._is_handed_over = False

    def run(self) -> _MailAnswer:
        try:
            return self._talk()
        except smtplib.SMTPAuthenticationError as error:
            return _MailAnswer(
                "smtp_5xx", "the mail server refused the user or the password", error.smtp_code
            )
        except smtplib.SMTPNotSupportedError:
            return _MailAnswer(
                FailureCategory.TLS.value, "the mail server offers no STARTTLS, or no way to log in"
            )
        except smtplib.SMTPResponseException as error:
            return _refusal(error.smtp_code, "the mail server")
        except ssl.SSLError:
            return _MailAnswer(FailureCategory.TLS.value, "the TLS handshake with the mail server failed")
        except TimeoutError:
            return self.lost(_MailAnswer(FailureCategory.TIMEOUT.value, "the mail server took too long"))
        except socket.gaierror:
            return _MailAnswer(FailureCategory.DNS.value, "the name of the mail server could not be resolved")
        except ConnectionRefusedError:
            return _MailAnswer(FailureCategory.REFUSED.value, "the mail server refused the connection")
        except (OSError, smtplib.SMTPException, ValueError):
            # What they say may quote the conversation.
            return self.lost(
                _MailAnswer(FailureCategory.RESET.value, "the connection to the mail server broke")
            )
        finally:
            self._close()

    def abort(self) -> None:
        """Let the thread end now; harmless when it has."""
        self._aborted = True
        smtp = self._smtp
        if smtp is not None and (sock := smtp.sock) is not None:
            with suppress(OSError):
                # Of the socket below the TLS, which another thread is reading from.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def lost(self, answer: _MailAnswer) -> _MailAnswer:
        """Return what a lost connection means: after the mail was handed over, nobody knows."""
        if not self._is_handed_over:
            return answer
        return _MailAnswer("unknown", "the answer of the mail server was lost; it may have taken the mail")

    def _talk(self) -> _MailAnswer:
        if self._aborted:
            return _MailAnswer(FailureCategory.TIMEOUT.value, "there was no time left")
        smtp = self._connect()
        code, _ = smtp.mail(self._sender)
        if not 200 <= code <= 299:
            return _refusal(code, "the mail server", "the sender's address")
        code, said = smtp.rcpt(self._address)
        if not 200 <= code <= 299:
            if _MAILBOX_GONE.match(said) and code >= 500:
                return _MailAnswer("gone", f"the mail server answered {code}: there is no such mailbox", code)
            return _refusal(code, "the mail server", "the address")
        code, _ = smtp.docmd("DATA")
        if code != 354:
            return _refusal(code, "the mail server")
        return self._hand_over(smtp)

    def _connect(self) -> smtplib.SMTP:
        its = self._server
        # The name that we give ourselves; smtplib would look ours up, and tell it.
        smtp = smtplib.SMTP(local_hostname=self._sender.rpartition("@")[2], timeout=STEP_TIMEOUT_S)
        # Not by smtplib, which shows its socket only when the greeting has come: nobody could abort before.
        smtp.sock = socket.create_connection((its.host, its.port), STEP_TIMEOUT_S)
        self._smtp = smtp
        if its.security is MailSecurity.TLS:
            self._wrap(smtp)
        code, _ = smtp.getreply()
        if code != 220:
            raise smtplib.SMTPConnectError(code, b"")
        smtp.ehlo_or_helo_if_needed()
        if its.security is MailSecurity.STARTTLS:
            self._start_tls(smtp)
        if its.password is not None:
            _log_in(smtp, its.user, its.password)
        return smtp

    def _start_tls(self, smtp: smtplib.SMTP) -> None:
        if not smtp.has_extn("starttls"):
            raise smtplib.SMTPNotSupportedError
        code, _ = smtp.docmd("STARTTLS")
        if code != 220:
            raise smtplib.SMTPResponseException(code, b"")
        self._wrap(smtp)
        # What was said before may be somebody else's words.
        smtp.ehlo()

    def _wrap(self, smtp: smtplib.SMTP) -> None:
        assert smtp.sock is not None
        smtp.sock = self._tls.wrap_socket(smtp.sock, server_hostname=self._server.host)
        # With the bytes in it that came unprotected.
        smtp.file = None

    def _hand_over(self, smtp: smtplib.SMTP) -> _MailAnswer:
        self._is_handed_over = True
        smtp.send(_dot_stuffed(self._message))
        code, _ = smtp.getreply()
        if 200 <= code <= 299:
            return _MailAnswer("ok", "the mail server took it", code)
        if code >= 500:
            return _MailAnswer("rejected", f"the mail server answered {code} to this mail", code)
        return _refusal(code, "the mail server")

    def _close(self) -> None:
        smtp, self._smtp = self._smtp, None
        if smtp is None:
            return
        # A polite end that nobody waits for; whether the mail was taken is settled.
        with suppress(OSError, smtplib.SMTPException, ValueError):
            if smtp.sock is not None and not self._aborted:
                smtp.sock.settimeout(1.0)
                smtp.quit()
        with suppress(OSError):
            smtp.close()


def _log_in(smtp: smtplib.SMTP, user: str, password: Secret) -> None:
    try:
        smtp.login(user, password.reveal())
    except (smtplib.SMTPResponseException, smtplib.SMTPServerDisconnected):
        raise
    except smtplib.SMTPException:
        # It offers no login, or only such as we do not know.
        raise smtplib.SMTPNotSupportedError from None


def _refusal(code: int, who: str, what: str = "") -> _MailAnswer:
    said = f"{who} answered {code}{' to ' + what if what else ''}"
    if code == _TOO_BUSY:
        return _MailAnswer("throttled", said, code)
    if 400 <= code <= 599:
        return _MailAnswer(f"smtp_{code // 100}xx", said, code)
    return _MailAnswer(FailureCategory.PROTOCOL.value, f"{who} gave an answer that is not SMTP")


def _dot_stuffed(message: bytes) -> bytes:
    lines = re.sub(rb"(?m)^\.", b"..", message)
    return lines + (b"" if lines.endswith(b"\r\n") else b"\r\n") + b".\r\n"


def _message(
    sender: str, address: str, event_id: str, text: MailText, at: datetime, event_type: str
) -> EmailMessage:
    """Return the mail: the same bytes at every try, so that a repeat can be told by its Message-ID."""
    message = EmailMessage(SMTP)
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
