"""Ask for an instance once, however often the network makes us say it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from gpuherd.clock import Clock, Random
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.instance.instance import OnFailure, Optimize
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.runtime.connection import ApiClient, Json, Reply
from gpuherd.entrypoints.cli.runtime.errors import NotAcknowledged
from gpuherd.entrypoints.cli.runtime.follow import PACE_S, Watcher
from gpuherd.entrypoints.cli.runtime.problems import ApiProblem, CannotConnect, not_ours


@dataclass(frozen=True)
class Launch:
    """What `gpuherd up` or `gpuherd plan` was asked for."""

    # A plan needs none.
    name: str | None
    product_name: str
    template_id: str
    gpu_num: int | None
    disk_gb: int | None
    regions: Sequence[str]
    hourly_usd_max: Decimal | None
    billing_mode: BillingMode | None
    optimize: Optimize | None
    labels: dict[str, str]
    webhook_url: str | None
    on_failure: OnFailure | None
    health_check: Json | None = None
    capacity_wait_s: int | None = None

    def body(self) -> Json:
        """Return the JSON of the create; what was not said is left to the server's defaults."""
        price = self.hourly_usd_max
        everything: Json = {
            "name": self.name,
            "productName": self.product_name,
            "templateId": self.template_id,
            "gpuNum": self.gpu_num,
            "rootfsSize": self.disk_gb,
            "regions": list(self.regions) or None,
            "maxHourlyPrice": None if price is None else float(price),
            "billingMode": self.billing_mode,
            "optimize": self.optimize,
            "labels": self.labels or None,
            "webhookUrl": self.webhook_url,
            "onFailure": self.on_failure,
            "healthCheck": self.health_check,
            "waitForCapacity": {"seconds": self.capacity_wait_s} if self.capacity_wait_s else None,
        }
        return {key: value for key, value in everything.items() if value is not None}


async def launch(
    api: ApiClient, wish: Launch, *, key: str, clock: Clock, deadline: float, watcher: Watcher
) -> Details:
    """Create it, and say it again under the same key when the answer was lost: that never rents twice."""
    unanswered: CannotConnect | None = None
    while True:
        try:
            reply = await api.post("/api/instances", wish.body(), headers={"Idempotency-Key": key})
        except CannotConnect as trouble:
            # Never sent, and nothing sent before: surely nothing happened, and waiting would only annoy.
            if not (trouble.sent or unanswered):
                raise
            unanswered = trouble
        except ApiProblem as problem:
            # "Not now" to the second question says nothing about the first one.
            if not (unanswered and problem.temporary):
                raise
        else:
            return _accepted(wish, reply)
        if clock.monotonic() + PACE_S >= deadline:
            advice = f"repeat the same command with --idempotency-key {key}: it never rents twice"
            raise NotAcknowledged(advice, unanswered) from unanswered
        watcher.unreachable(unanswered.reason)
        await clock.sleep(PACE_S)


def _accepted(wish: Launch, reply: Reply) -> Details:
    """Read the short answer to a create; what it leaves out, we know from having asked."""
    asked = {key: value for key, value in wish.body().items() if key in _ECHOED}
    details = Details(asked | reply.body)
    if not details.id:
        raise not_ours(reply.status)
    return details


_ECHOED = ("name", "productName", "gpuNum", "billingMode")


def new_key(chance: Random) -> str:
    """Return a fresh idempotency key."""
    return f"cli-{chance.getrandbits(128):032x}"


def new_name(product_name: str, chance: Random) -> str:
    """Return a name for somebody who did not care to give one: `rtx-4090-3f2a`."""
    slug = re.sub(r"[^a-z0-9]+", "-", product_name.casefold()).strip("-")[:40].strip("-")
    return f"{slug or 'gpu'}-{chance.getrandbits(16):04x}"
