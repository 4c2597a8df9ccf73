"""Webhooks: their delivery, and what the outside may ask about them."""

from __future__ import annotations

from gpuherd.bootstrap.parts.shared import Shared
from gpuherd.bootstrap.ports import Ports, Values
from gpuherd.entrypoints.plane import WebhookServices
from gpuherd.resilience.host_gate import HostGate
from gpuherd.usecases.webhooks.deliver import DeliverWebhook
from gpuherd.usecases.webhooks.endpoints import ManageEndpoints
from gpuherd.usecases.webhooks.list_deliveries import ListDeliveries
from gpuherd.usecases.webhooks.message_pace import MessagePace
from gpuherd.usecases.webhooks.replay import ReplayWebhooks
from gpuherd.usecases.webhooks.send_test import SendTestWebhook


def build_delivery(ports: Ports, shared: Shared, gate: HostGate) -> DeliverWebhook:
    """Return what sends one delivery of the outbox."""
    return DeliverWebhook(
        outbox=ports.stores.outbox,
        sender=ports.webhook_sender,
        notifier=ports.notifier,
        endpoint_cache=shared.endpoint_cache,
        key_secrets=shared.key_secrets,
        gate=gate,
        pace=MessagePace(ports.clock),
        book=ports.stores.book,
        job_factory=shared.job_factory,
        clock=ports.clock,
        rng=ports.rng,
        meter=ports.meter,
        tracer=ports.tracer,
    )


def build_webhooks(ports: Ports, values: Values, shared: Shared) -> WebhookServices:
    """Return what the outside may ask about webhooks."""
    stores, clock, ids, endpoint_cache = ports.stores, ports.clock, ports.ids, shared.endpoint_cache
    return WebhookServices(
        endpoints=ManageEndpoints(
            stores.endpoints, endpoint_cache, values.webhook_keys, ports.notifier, clock, ids
        ),
        deliveries=ListDeliveries(stores.deliveries),
        replay=ReplayWebhooks(stores.outbox, stores.deliveries, shared.job_factory, clock),
        test=SendTestWebhook(
            ports.webhook_sender,
            ports.notifier,
            stores.endpoints,
            endpoint_cache,
            shared.key_secrets,
            clock,
            ids,
        ),
        key_secrets=shared.key_secrets,
    )
