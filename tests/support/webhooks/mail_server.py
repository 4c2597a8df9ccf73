"""A small SMTP server on loopback that keeps what it takes, and refuses as a test says."""

from __future__ import annotations

import asyncio
import base64
import ssl
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default

from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_endpoint import MailSecurity, SmtpServer
from tests.support.net.loopback_server import LoopbackServer

USER, PASSWORD = "herd", "canary-of-the-mail-server"


@dataclass(frozen=True)
class TakenMail:
    """One mail, as it was handed in."""

    sender: str
    recipient: str
    raw: bytes

    @property
    def message(self) -> EmailMessage:
        read = message_from_bytes(self.raw, policy=default)
        assert isinstance(read, EmailMessage)
        return read

    @property
    def text(self) -> str:
        return str(self.message.get_content()).replace("\r\n", "\n")


@dataclass
class MailServer(LoopbackServer):
    """Speaks enough of RFC 5321; `replies` has other answers to a verb than the usual ones.

    The verb of the end of a mail is `.`, the one of the greeting `HI`. None closes the connection; an answer
    that begins with a blank is never sent, and nothing more is said.
    """

    tls: ssl.SSLContext | None = None
    security: MailSecurity = MailSecurity.PLAIN
    replies: dict[str, bytes | None] = field(default_factory=dict)
    offers: tuple[str, ...] = ("STARTTLS", "AUTH PLAIN", "8BITMIME")
    mails: list[TakenMail] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)

    @property
    def server(self) -> SmtpServer:
        """How the service is told of it; with a login where that is protected."""
        login = (USER, Secret(PASSWORD)) if self.security is not MailSecurity.PLAIN else ("", None)
        return SmtpServer("127.0.0.1", self.port, self.security, *login)

    def listening_tls(self) -> ssl.SSLContext | None:
        return self.tls if self.security is MailSecurity.TLS else None

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sender = recipient = ""
        verb, answer = "HI", b"220 mail.example.com ESMTP"
        while True:
            said = self.replies.get(verb, answer)
            if said is None:
                return
            if said.startswith(b" "):
                await asyncio.Event().wait()
            writer.write(said + b"\r\n")
            await writer.drain()
            if verb == "STARTTLS" and said.startswith(b"220") and self.tls is not None:
                await writer.start_tls(self.tls)
            if verb == "DATA" and said.startswith(b"354"):
                raw = (await reader.readuntil(b"\r\n.\r\n"))[:-3].replace(b"\r\n..", b"\r\n.")
                verb, answer = ".", b"250 2.0.0 taken"
                if (self.replies.get(".", answer) or b"250").startswith((b"250", b" ")):
                    self.mails.append(TakenMail(sender, recipient, raw))
                continue
            line = (await reader.readuntil(b"\r\n")).decode().strip()
            self.commands.append(line)
            verb, _, rest = line.partition(" ")
            verb, answer = verb.upper(), b"250 2.1.0 fine"
            match verb:
                case "EHLO":
                    answer = b"\r\n".join(
                        [*(b"250-" + it.encode() for it in ("mail.example.com", *self.offers)), b"250 SIZE"]
                    )
                case "STARTTLS":
                    answer = b"220 2.0.0 go on"
                case "AUTH":
                    answer = self._login(rest)
                case "MAIL":
                    sender = rest.partition("<")[2].partition(">")[0]
                case "RCPT":
                    recipient = rest.partition("<")[2].partition(">")[0]
                case "DATA":
                    answer = b"354 go on"
                case "QUIT":
                    writer.write(b"221 bye\r\n")
                    await writer.drain()
                    return

    def _login(self, rest: str) -> bytes:
        _, user, password = base64.b64decode(rest.removeprefix("PLAIN ")).decode().split("\0")
        self.logins.append((user, password))
        return b"235 2.7.0 welcome" if (user, password) == (USER, PASSWORD) else b"535 5.7.8 no"
