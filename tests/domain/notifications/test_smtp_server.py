"""The mail server as one setting names it."""

from __future__ import annotations

import pytest

from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_endpoint import MailSecurity, SmtpServer


def test_a_url_names_host_port_security_and_login(subtests: pytest.Subtests) -> None:
    for url, server in [
        ("smtps://u:p@mail.example.com", ("mail.example.com", 465, MailSecurity.TLS, "u", "p")),
        (
            "smtp://u:p%40%3A%2F@mail.example.com",
            ("mail.example.com", 587, MailSecurity.STARTTLS, "u", "p@:/"),
        ),
        ("smtp://u%40example.com:p@h:2525/", ("h", 2525, MailSecurity.STARTTLS, "u@example.com", "p")),
        ("smtp+plain://localhost", ("localhost", 25, MailSecurity.PLAIN, "", "")),
        ("smtp+plain://[::1]:1025", ("::1", 1025, MailSecurity.PLAIN, "", "")),
    ]:
        with subtests.test(url=url, server=server):
            it = SmtpServer.parse(Secret(url))
            password = it.password.reveal() if it.password else ""
            assert (it.host, it.port, it.security, it.user, password) == server
            assert "p@:/" not in repr(it)


def test_a_url_that_makes_no_sense_is_refused_without_being_quoted(subtests: pytest.Subtests) -> None:
    for url, why in [
        ("https://u:canary@h", "must be smtps"),
        ("mail.example.com", "must be smtps"),
        ("smtp://", "must be smtps"),
        ("smtp://u:canary@h:port", "must be smtps"),
        ("smtp://u:canary@h/path", "must be smtps"),
        ("smtp://u:canary@h?x=1", "must be smtps"),
        ("smtp://u@h", "a user and a password"),
        ("smtp://:canary@h", "a user and a password"),
        ("smtp://u:canäry@h", "ASCII"),
        ("smtp+plain://u:canary@h", "in the clear"),
    ]:
        with subtests.test(url=url, why=why):
            with pytest.raises(ValueError, match=why) as raised:
                SmtpServer.parse(Secret(url))
            assert "canary" not in str(raised.value) and raised.value.__cause__ is None
