"""What a herd's outside may ask about webhooks."""

from __future__ import annotations

from gpuherd.adapters.sql.webhooks.delivery_log import SqlDeliveryLog
from gpuherd.entrypoints.plane import WebhookServices
from gpuherd.usecases.webhooks.endpoints import ManageEndpoints
from gpuherd.usecases.webhooks.replay import ReplayWebhooks
from gpuherd.usecases.webhooks.send_test import SendTestWebhook
from tests.support.herd import Herd


def webhooks_of(herd: Herd) -> WebhookServices:
    """Put the use cases together as bootstrap does."""
    log = SqlDeliveryLog(herd.database, herd.clock)
    return WebhookServices(
        endpoints=ManageEndpoints(herd.endpoints, herd.endpoint_cache, herd.keys, herd.clock, herd.ids),
        outbox=herd.outbox,
        log=log,
        replay=ReplayWebhooks(herd.outbox, log, herd.job_factory, herd.clock),
        test=SendTestWebhook(herd.receiver, herd.endpoints, herd.endpoint_cache, herd.clock, herd.ids),
    )
