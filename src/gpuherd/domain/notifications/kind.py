"""The kinds of endpoint: a program that verifies webhooks, or a place where people read."""

from __future__ import annotations

from enum import StrEnum


class EndpointKind(StrEnum):
    """How an event is written for an endpoint."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    DISCORD = "discord"
    NTFY = "ntfy"
    EMAIL = "email"

    @property
    def is_signed(self) -> bool:
        """Tell whether the receiver is a program that can verify a signature."""
        return self is EndpointKind.WEBHOOK

    @property
    def messages_per_s(self) -> float:
        """How many messages one address takes in the long run; 0 where nobody says."""
        return _MESSAGES_PER_S.get(self, 0.0)


# Slack says one a second, Discord five in two; ntfy lets bursts pass, and then fewer.
_MESSAGES_PER_S = {EndpointKind.SLACK: 1.0, EndpointKind.DISCORD: 2.0, EndpointKind.NTFY: 1.0}

# What a person wants to be told unasked: it can be used, it is lost, it ends, it costs. The rest is progress.
READ_BY_PEOPLE = (
    "account.low_balance",
    "budget.exhausted",
    "budget.reset",
    "budget.warning",
    "costs.drift",
    "costs.price_changed",
    "instance.data_expiring",
    "instance.exited",
    "instance.failed",
    "instance.idle_ended",
    "instance.idle_warning",
    "instance.lease_ended",
    "instance.lease_ending",
    "instance.orphan_detected",
    "instance.ready",
    "instance.reclaim_notice",
    "instance.reclaim_withdrawn",
    "instance.replaced",
    "instance.replacement_gave_up",
    "instance.replacement_refused",
    "instance.silence_ended",
    "instance.timeout",
)


def default_events(kind: EndpointKind) -> tuple[str, ...]:
    """Return what an endpoint hears of if nobody says; none means all."""
    return () if kind is EndpointKind.WEBHOOK else READ_BY_PEOPLE
