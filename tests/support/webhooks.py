"""What a herd's outside may ask about webhooks."""

from __future__ import annotations

from gpuherd.adapters.sql.delivery_log import SqlDeliveryLog
from gpuherd.entrypoints.plane import Webhooks
from gpuherd.usecases.manage_endpoints import ManageEndpoints
from gpuherd.usecases.replay_webhooks import ReplayWebhooks
from gpuherd.usecases.try_webhook import TryWebhook
from tests.support.herd import Herd


def webhooks_of(herd: Herd) -> Webhooks:
    """Put the use cases together as bootstrap does."""
    log = SqlDeliveryLog(herd.database, herd.clock)
    return Webhooks(
        endpoints=ManageEndpoints(herd.endpoints, herd.directory, herd.keys, herd.clock, herd.ids),
        outbox=herd.outbox,
        log=log,
        replay=ReplayWebhooks(herd.outbox, log, herd.activities, herd.clock),
        test=TryWebhook(herd.receiver, herd.endpoints, herd.directory, herd.clock, herd.ids),
    )
