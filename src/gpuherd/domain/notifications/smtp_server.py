"""The mail server of the operator, as one setting names it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote, urlsplit

from gpuherd.domain.access.secret import Secret


class MailSecurity(StrEnum):
    """How the connection is protected."""

    # TLS from the first byte.
    TLS = "smtps"
    # STARTTLS, and nothing without it.
    STARTTLS = "smtp"
    # None: for a relay on the same host or network.
    PLAIN = "smtp+plain"


_PORTS = {MailSecurity.TLS: 465, MailSecurity.STARTTLS: 587, MailSecurity.PLAIN: 25}
_FORM = "must be smtps://user:password@host, smtp://user:password@host (STARTTLS) or smtp+plain://host"


@dataclass(frozen=True)
class SmtpServer:
    """Where mail is handed in, and as whom."""

    host: str
    port: int
    security: MailSecurity
    user: str = ""
    password: Secret | None = None

    @classmethod
    def parse(cls, url: Secret) -> SmtpServer:
        """Read the setting; `ValueError` says what is wrong, and quotes nothing of it."""
        try:
            parts = urlsplit(url.reveal())
            security, host, port = MailSecurity(parts.scheme), parts.hostname, parts.port
        except ValueError:
            raise ValueError(_FORM) from None
        if not host or parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError(_FORM)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if bool(user) != bool(password):
            raise ValueError("needs a user and a password, or neither")
        if not (user + password).isascii():
            raise ValueError("has a user or password that is not ASCII, which SMTP cannot carry")
        if user and security is MailSecurity.PLAIN:
            raise ValueError("would send the password in the clear; use smtp:// (STARTTLS) or smtps://")
        return cls(host, port or _PORTS[security], security, user, Secret(password) if password else None)
