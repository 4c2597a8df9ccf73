"""Which addresses each kind of endpoint takes, and what of them is shown."""

from __future__ import annotations

from itertools import product

import pytest

from gpuherd.domain.egress_policy import BlockedTarget, EgressPolicy
from gpuherd.domain.webhooks.webhook_endpoint import (
    EndpointKind,
    check_target,
    mail_address,
    shown_target,
    split_ntfy_topic,
)

POLICY = EgressPolicy()
SLACK = "https://hooks.slack.com/services/T000/B000/canary"
DISCORD = "https://discord.com/api/webhooks/1/canary?wait=true"
CHATS = [EndpointKind.SLACK, EndpointKind.DISCORD, EndpointKind.NTFY]


def test_an_address_that_is_a_secret_is_shown_by_its_host_alone(subtests: pytest.Subtests) -> None:
    for kind, url, shown in [
        (EndpointKind.WEBHOOK, "https://example.com/a?b=canary", "https://example.com/a?***"),
        (EndpointKind.SLACK, SLACK, "https://hooks.slack.com/***"),
        (EndpointKind.DISCORD, DISCORD, "https://discord.com/***"),
        (
            EndpointKind.NTFY,
            "https://ntfy.example.com:8443/canary?auth=canary",
            "https://ntfy.example.com:8443/***",
        ),
        (EndpointKind.EMAIL, "mailto:ops@example.com", "mailto:ops@example.com"),
    ]:
        with subtests.test(kind=kind, url=url, shown=shown):
            assert check_target(kind, url, POLICY) == url
            assert shown_target(kind, url) == shown
            assert "canary" not in shown


def test_an_address_that_cannot_be_read_is_not_shown_at_all() -> None:
    assert shown_target(EndpointKind.SLACK, "https://[canary") == "***"


def test_the_egress_policy_holds_for_every_kind(subtests: pytest.Subtests) -> None:
    for kind, url in product(
        CHATS,
        [
            "http://127.0.0.1/topic",
            "http://2130706433/topic",
            "http://[::ffff:169.254.169.254]/topic",
            "http://169.254.169.254/topic",
            "https://localhost/topic",
            "https://user:password@example.com/topic",
            "https://example.com:6379/topic",
            "ftp://example.com/topic",
            "mailto:ops@example.com",
            "https://example.com/a b",
            "",
        ],
    ):
        with subtests.test(kind=kind, url=url), pytest.raises(BlockedTarget):
            check_target(kind, url, POLICY)


def test_a_mail_address_may_come_with_or_without_its_scheme() -> None:
    for given in ("mailto:ops@example.com", "ops@example.com"):
        assert check_target(EndpointKind.EMAIL, given, POLICY) == "mailto:ops@example.com"
    for fine in ("a.b+c@x.example.com", "o'neil@example.com", "root@localhost", "x@xn--bcher-kva.example"):
        assert mail_address(fine) == fine


def test_what_is_no_plain_mail_address_is_refused(subtests: pytest.Subtests) -> None:
    for address in [
        *("", "ops", "@example.com", "ops@", "ops@example.com ", " ops@example.com", "ops@exa mple.com"),
        *("ops@example.com\r\nBcc: x@example.com", "ops@example.com>,<x@example.com", "a@b@example.com\n"),
        *("<ops@example.com>", "Ops <ops@example.com>", '"a b"@example.com', "a,b@example.com", "a..b@x.org"),
        *(
            "ops@[127.0.0.1]",
            "ops@[IPv6:::1]",
            "ops@127.0.0.1",
            "inside%relay@example.com",
            "a!b@example.com",
        ),
        *("ops@example.com?subject=x", "öps@example.com", "ops@exämple.com", "x" * 65 + "@example.com"),
        *("ops@" + "a." * 130 + "example.com", "ops@-example.com", "ops@example.com.", ".ops@example.com"),
    ]:
        with subtests.test(address=address):
            with pytest.raises(BlockedTarget):
                mail_address(address)
            with pytest.raises(BlockedTarget):
                mail_address(f"mailto:{address}")


def test_a_topic_is_published_to_at_the_root_of_its_server() -> None:
    assert split_ntfy_topic("https://ntfy.sh/my-topic") == ("https://ntfy.sh/", "my-topic")
    assert split_ntfy_topic("https://ntfy.sh/t?auth=x") == ("https://ntfy.sh/?auth=x", "t")
    for url in (
        "https://ntfy.sh",
        "https://ntfy.sh/",
        "https://ntfy.sh/a/",
        "https://ntfy.sh/a,b",
        "https://ntfy.sh/%2e",
    ):
        with pytest.raises(BlockedTarget, match="topic"):
            split_ntfy_topic(url)
