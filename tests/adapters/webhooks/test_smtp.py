"""Mail over loopback: what a real server gets, and what each of its answers is called."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuherd.adapters.egress.people_notifier import SmtpMailer
from gpuherd.domain.webhooks.people_message import MailText, mail_text, notice_of
from gpuherd.domain.webhooks.webhook_endpoint import MailSecurity, SmtpServer
from gpuherd.ports.webhook_port import DeliveryResult
from tests.domain.notifications.hostile_words import HOSTILE_WORDS
from tests.domain.notifications.test_notice import event
from tests.support.fake_clock import FakeClock
from tests.support.net.self_signed import self_signed
from tests.support.webhooks.mail_server import PASSWORD, USER, MailServer

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
FROM, TO = "gpuherd@herd.example.com", "ops@example.com"
TEXT = MailText("[gpuherd] trainer is ready", "trainer is ready\n.\n..\n. dots\nSSH: ü\n")
# Read once: it takes longer than most of these tests.
STRICT = ssl.create_default_context()


def mailer_of(server: SmtpServer, tls: ssl.SSLContext = STRICT) -> SmtpMailer:
    return SmtpMailer(server, FROM, tls, FakeClock())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"), "mail", "IP:127.0.0.1")


def presenting(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    return context


async def send(mailer: SmtpMailer, text: MailText = TEXT, event_id: str = "msg_1") -> DeliveryResult:
    return await mailer.send(TO, event_id, text, AT, "instance.ready")


async def test_a_mail_arrives_with_every_byte_and_a_message_id_of_the_event() -> None:
    async with MailServer() as server:
        result = await send(mailer_of(server.server))
    assert result == DeliveryResult(True, 250, "ok", "the mail server took it", None, 0.0)
    (mail,) = server.mails
    assert (mail.sender, mail.recipient, mail.text) == (FROM, TO, TEXT.body)
    headers = {name: str(value) for name, value in mail.message.items()}
    assert headers["Message-ID"] == "<msg_1@herd.example.com>"
    assert (headers["From"], headers["To"]) == (f"gpuherd <{FROM}>", TO)
    assert (headers["Subject"], headers["Date"]) == (TEXT.subject, "Thu, 01 Jan 2026 12:00:00 +0000")
    assert headers["Auto-Submitted"] == "auto-generated"
    assert headers["X-Gpuherd-Event"] == "instance.ready"
    # Not the name of this machine.
    assert server.commands[0] == "EHLO herd.example.com"


@pytest.mark.parametrize("security", [MailSecurity.TLS, MailSecurity.STARTTLS])
async def test_the_login_goes_over_tls_alone(security: MailSecurity, certificate: tuple[Path, Path]) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    async with MailServer(presenting(certificate), security) as server:
        assert (await send(mailer_of(server.server, trusting))).accepted
    assert server.logins == [(USER, PASSWORD)]
    before_tls = server.commands[: server.commands.index("STARTTLS")] if "STARTTLS" in server.commands else []
    assert not any(it.upper().startswith(("AUTH", "MAIL")) for it in before_tls)


@pytest.mark.parametrize("security", [MailSecurity.TLS, MailSecurity.STARTTLS])
async def test_a_server_whose_certificate_nobody_vouches_for_gets_neither_login_nor_mail(
    security: MailSecurity, certificate: tuple[Path, Path]
) -> None:
    async with MailServer(presenting(certificate), security) as server:
        result = await send(mailer_of(server.server))
    assert (result.accepted, result.category) == (False, "tls")
    assert server.logins == [] and server.mails == []


async def test_without_starttls_nothing_is_said_in_the_clear() -> None:
    async with MailServer(security=MailSecurity.STARTTLS, offers=("AUTH PLAIN",)) as server:
        result = await send(mailer_of(server.server))
    assert (result.accepted, result.category) == (False, "tls")
    assert server.logins == [] and server.mails == []


@pytest.mark.parametrize(
    ("verb", "answer", "category", "status"),
    [
        ("HI", b"421 4.7.0 too many connections", "throttled", 421),
        ("HI", b"554 5.7.1 not you", "smtp_5xx", 554),
        ("HI", b"hello", "protocol", None),
        ("MAIL", b"451 4.3.0 later", "smtp_4xx", 451),
        ("MAIL", b"550 5.7.1 not from here", "smtp_5xx", 550),
        ("RCPT", b"450 4.2.0 greylisted", "smtp_4xx", 450),
        ("RCPT", b"421 4.4.5 busy", "throttled", 421),
        ("RCPT", b"550 5.1.1 no such user", "gone", 550),
        ("RCPT", b"550 5.2.1 mailbox is switched off", "gone", 550),
        ("RCPT", b"550 5.7.1 relaying denied", "smtp_5xx", 550),
        ("RCPT", b"550 no", "smtp_5xx", 550),
        ("DATA", b"451 4.3.2 later", "smtp_4xx", 451),
        ("DATA", b"554 5.5.1 no recipients", "rejected", 554),
        (".", b"452 4.3.1 disk full", "smtp_4xx", 452),
        (".", b"554 5.7.1 looks like spam", "rejected", 554),
        (".", None, "unknown", None),
        ("HI", None, "reset", None),
        ("RCPT", None, "reset", None),
    ],
)
async def test_each_answer_has_its_category(
    verb: str, answer: bytes | None, category: str, status: int | None
) -> None:
    async with MailServer(replies={verb: answer}) as server:
        result = await send(mailer_of(server.server))
    assert (result.accepted, result.category, result.status) == (False, category, status)
    # In our own words: what a server writes may quote the mail.
    assert "spam" not in result.detail and "user" not in result.detail
    assert len(server.mails) == (verb == "." and answer is None)


async def test_a_refused_login_is_told_without_it(certificate: tuple[Path, Path]) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    replies: dict[str, bytes | None] = {"AUTH": f"535 5.7.8 not {PASSWORD}".encode()}
    async with MailServer(presenting(certificate), MailSecurity.STARTTLS, replies) as server:
        result = await send(mailer_of(server.server, trusting))
    assert (result.category, result.status) == ("smtp_5xx", 535)
    assert PASSWORD not in repr(result)


@pytest.mark.parametrize("offers", [("STARTTLS",), ("STARTTLS", "AUTH XOAUTH2")])
async def test_a_server_without_a_login_that_we_know_gets_no_mail(
    offers: tuple[str, ...], certificate: tuple[Path, Path]
) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    async with MailServer(presenting(certificate), MailSecurity.STARTTLS, offers=offers) as server:
        result = await send(mailer_of(server.server, trusting))
    assert (result.category, result.status) == ("tls", None)
    assert "no way to log in" in result.detail
    assert server.logins == [] and server.mails == []


async def test_nobody_at_the_port_is_a_refusal() -> None:
    async with MailServer() as server:
        gone = server.server
    assert (await send(mailer_of(gone))).category == "refused"


@pytest.mark.parametrize(("verb", "category"), [("HI", "timeout"), ("RCPT", "timeout"), (".", "unknown")])
async def test_a_server_that_falls_silent_is_left_within_the_time_for_the_whole(
    verb: str, category: str
) -> None:
    async with MailServer(replies={verb: b" silence"}) as server:
        mailer = SmtpMailer(server.server, FROM, STRICT, FakeClock(), timeout_s=0.2)
        assert (await send(mailer)).category == category


async def test_a_repeat_after_a_lost_answer_is_the_same_mail() -> None:
    async with MailServer(replies={".": None}) as server:
        mailer = mailer_of(server.server)
        assert (await send(mailer)).category == "unknown"
        server.replies.clear()
        assert (await send(mailer)).accepted
        await send(mailer, event_id="msg_2")
    first, again, other = server.mails
    # A reader, and many servers, know a repeat by its Message-ID.
    assert first.raw == again.raw
    assert first.message["Message-ID"] != other.message["Message-ID"]


@pytest.mark.proves("N1")
@pytest.mark.parametrize("word", HOSTILE_WORDS)
async def test_a_name_can_add_neither_a_header_nor_a_command_nor_markup(word: str) -> None:
    text = mail_text(notice_of(event("instance.failed", name=word, statusReason=word, productName=word)))
    async with MailServer() as server:
        assert (await send(mailer_of(server.server), text)).accepted
    assert [it.split(" ")[0].upper() for it in server.commands] == ["EHLO", "MAIL", "RCPT", "DATA", "QUIT"]
    (mail,) = server.mails
    assert sorted(mail.message.keys()) == sorted(
        (
            *("From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "X-Gpuherd-Event"),
            *("Content-Type", "Content-Transfer-Encoding", "MIME-Version"),
        )
    )
    assert mail.message.get_content_type() == "text/plain"
    assert " ".join(str(mail.message["Subject"]).split()) == text.subject
    assert mail.text == text.body
    assert all(len(line) <= 998 for line in mail.raw.split(b"\r\n")) and mail.raw.isascii()
