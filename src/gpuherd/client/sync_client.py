"""`Gpuherd`: the client for programs that wait for each answer. Its methods run those of `AsyncGpuherd`."""

from __future__ import annotations

import random
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from gpuherd.client.access_resources import (
    AsyncAudit,
    AsyncDeliveries,
    AsyncEndpoints,
    AsyncKeys,
    AsyncSecrets,
    AsyncWebhooks,
)
from gpuherd.client.account_resources import (
    AsyncBudgets,
    AsyncCloud,
    AsyncCosts,
    AsyncOrphans,
    AsyncPrewarms,
    AsyncRegistry,
    AsyncVolumes,
)
from gpuherd.client.async_client import TIMEOUT_S, AsyncGpuherd
from gpuherd.client.blocking_calls import (
    CallingThread,
    blocking,
    blocking_iterator,
    blocking_pages,
    run_in_background,
)
from gpuherd.client.client_connection import DEFAULT_RETRIES, Clock
from gpuherd.client.client_transport import USER_AGENT, Transport
from gpuherd.client.follow_instance import OnProgress
from gpuherd.client.instance_resources import WAIT_S, AsyncInstances, AsyncJobs, AsyncOperations
from gpuherd.client.rental import Release, Rental, rental_terms
from gpuherd.client.server_address import Address
from gpuherd.client.wish import Wish
from gpuherd.contract.instance_models import Instance
from gpuherd.domain.secret import Secret


class Resource:
    """One subject of the API. Its methods run those of its asynchronous twin."""

    def __init__(self, twin: Any) -> None:
        self._twin = twin


class Instances(Resource):
    """`herd.instances`. An instance is given by its id, its name or an `Instance`."""

    create = blocking(AsyncInstances.create)
    rent_plan = blocking(AsyncInstances.rent_plan)
    get = blocking(AsyncInstances.get)
    list = blocking_pages(AsyncInstances.list)
    start = blocking(AsyncInstances.start)
    restart = blocking(AsyncInstances.restart)
    replace = blocking(AsyncInstances.replace)
    stop = blocking(AsyncInstances.stop)
    delete = blocking(AsyncInstances.delete)
    set_lease = blocking(AsyncInstances.set_lease)
    remove_lease = blocking(AsyncInstances.remove_lease)
    heartbeat = blocking(AsyncInstances.heartbeat)
    wait = blocking(AsyncInstances.wait)
    follow = blocking(AsyncInstances.follow)
    events = blocking(AsyncInstances.events)
    attempts = blocking(AsyncInstances.attempts)
    logs = blocking_iterator(AsyncInstances.logs)
    why = blocking(AsyncInstances.why)


class Operations(Resource):
    """`herd.operations`."""

    get = blocking(AsyncOperations.get)


class Jobs(Resource):
    """`herd.jobs`."""

    list = blocking_pages(AsyncJobs.list)
    get = blocking(AsyncJobs.get)
    stats = blocking(AsyncJobs.stats)
    retry = blocking(AsyncJobs.retry)


class CostsResource(Resource):
    """`herd.costs`."""

    get = blocking(AsyncCosts.get)
    leftovers = blocking(AsyncCosts.leftovers)
    balance = blocking(AsyncCosts.balance)
    bill = blocking(AsyncCosts.bill)
    reconcile = blocking(AsyncCosts.reconcile)


class Budgets(Resource):
    """`herd.budgets`: for admins."""

    list = blocking(AsyncBudgets.list)
    get = blocking(AsyncBudgets.get)
    add = blocking(AsyncBudgets.add)
    set = blocking(AsyncBudgets.set)
    remove = blocking(AsyncBudgets.remove)


class Volumes(Resource):
    """`herd.volumes`."""

    list = blocking(AsyncVolumes.list)
    create = blocking(AsyncVolumes.create)
    delete = blocking(AsyncVolumes.delete)


class Registry(Resource):
    """`herd.registry`: logins to registries."""

    list = blocking(AsyncRegistry.list)


class Prewarms(Resource):
    """`herd.prewarms`: an image is pulled into a region before a machine needs it."""

    list = blocking(AsyncPrewarms.list)
    quota = blocking(AsyncPrewarms.quota)
    create = blocking(AsyncPrewarms.create)
    wait = blocking(AsyncPrewarms.wait)
    delete = blocking(AsyncPrewarms.delete)


class Cloud(Resource):
    """`herd.cloud`: why gpuherd does not trust the cloud's lists, and the answers of an admin."""

    get = blocking(AsyncCloud.get)
    confirm_account = blocking(AsyncCloud.confirm_account)
    confirm_loss = blocking(AsyncCloud.confirm_loss)


class OrphansResource(Resource):
    """`herd.orphans`: machines on the account that no instance has."""

    list = blocking(AsyncOrphans.list)
    get = blocking(AsyncOrphans.get)
    adopt = blocking(AsyncOrphans.adopt)
    stop = blocking(AsyncOrphans.stop)
    delete = blocking(AsyncOrphans.delete)
    resume = blocking(AsyncOrphans.resume)


class Keys(Resource):
    """`herd.keys`: for admins, but for `own` and the webhook secret."""

    list = blocking(AsyncKeys.list)
    create = blocking(AsyncKeys.create)
    webhook_secret = blocking(AsyncKeys.webhook_secret)
    rotate_webhook_secret = blocking(AsyncKeys.rotate_webhook_secret)
    own = blocking(AsyncKeys.own)
    get = blocking(AsyncKeys.get)
    revoke = blocking(AsyncKeys.revoke)


class Secrets(Resource):
    """`herd.secrets`: named secrets for `envs`: `{"HF_TOKEN": {"secret": "hf"}}`."""

    list = blocking(AsyncSecrets.list)
    get = blocking(AsyncSecrets.get)
    set = blocking(AsyncSecrets.set)
    remove = blocking(AsyncSecrets.remove)
    rotate = blocking(AsyncSecrets.rotate)


class Audit(Resource):
    """`herd.audit`: for admins."""

    list = blocking_pages(AsyncAudit.list)


class Endpoints(Resource):
    """`herd.webhooks.endpoints`: for admins."""

    list = blocking(AsyncEndpoints.list)
    add = blocking(AsyncEndpoints.add)
    get = blocking(AsyncEndpoints.get)
    rotate = blocking(AsyncEndpoints.rotate)
    enable = blocking(AsyncEndpoints.enable)
    remove = blocking(AsyncEndpoints.remove)


class Deliveries(Resource):
    """`herd.webhooks.deliveries`."""

    list = blocking_pages(AsyncDeliveries.list)
    get = blocking(AsyncDeliveries.get)
    replay = blocking(AsyncDeliveries.replay)


class Webhooks(Resource):
    """`herd.webhooks`."""

    def __init__(self, twin: AsyncWebhooks) -> None:
        super().__init__(twin)
        self.endpoints = Endpoints(twin.endpoints)
        self.deliveries = Deliveries(twin.deliveries)

    replay = blocking(AsyncWebhooks.replay)
    test = blocking(AsyncWebhooks.test)


class Gpuherd(Resource):
    """A gpuherd server. Without arguments: the one of GPUHERD_URL, else the one on this machine.

    Threads may share it. Close it, or use it as a context manager.
    """

    _twin: AsyncGpuherd

    def __init__(
        self,
        url: str | Address | None = None,
        key: str | Secret | None = None,
        timeout_s: float = TIMEOUT_S,
        *,
        max_retries: int = DEFAULT_RETRIES.tries - 1,
        user_agent: str = USER_AGENT,
        transport: Transport | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        twin = AsyncGpuherd(
            url,
            key,
            timeout_s,
            max_retries=max_retries,
            user_agent=user_agent,
            transport=transport,
            clock=clock,
            rng=rng,
        )
        super().__init__(twin)
        weakref.finalize(self, _close_forgotten, twin)
        self.url = twin.url
        self.instances = Instances(twin.instances)
        self.operations = Operations(twin.operations)
        self.jobs = Jobs(twin.jobs)
        self.cloud = Cloud(twin.cloud)
        self.costs = CostsResource(twin.costs)
        self.budgets = Budgets(twin.budgets)
        self.volumes = Volumes(twin.volumes)
        self.registry = Registry(twin.registry)
        self.prewarms = Prewarms(twin.prewarms)
        self.orphans = OrphansResource(twin.orphans)
        self.keys = Keys(twin.keys)
        self.secrets = Secrets(twin.secrets)
        self.audit = Audit(twin.audit)
        self.webhooks = Webhooks(twin.webhooks)

    def rent(
        self,
        name: str,
        *,
        product_name: str | Sequence[str],
        template_id: str | int | None = None,
        timeout_s: float = WAIT_S,
        on_progress: OnProgress | None = None,
        release: Release = "delete",
        keep_on_error: bool = False,
        **wish: Unpack[Wish],
    ) -> Rented:
        """Rent for the length of a `with`: usable inside, released after it, whatever happens.

        `keep_on_error` keeps it when an `Exception` ends the block. An interrupt releases it.
        """
        thread = CallingThread()
        terms = rental_terms(
            self._twin._connection,
            name,
            product_name,
            template_id,
            wish,
            timeout_s=timeout_s,
            on_progress=thread.relay(on_progress),
            release=release,
            keep_on_error=keep_on_error,
        )
        return Rented(Rental(self._twin._connection, terms), thread)

    plan = blocking(AsyncGpuherd.plan)
    held_plan = blocking(AsyncGpuherd.held_plan)
    products = blocking(AsyncGpuherd.products)
    templates = blocking(AsyncGpuherd.templates)
    template = blocking(AsyncGpuherd.template)
    regions = blocking(AsyncGpuherd.regions)
    comprehensive = blocking(AsyncGpuherd.comprehensive)
    sync = blocking(AsyncGpuherd.sync)
    creates = blocking(AsyncGpuherd.creates)
    resume_creates = blocking(AsyncGpuherd.resume_creates)
    events = blocking_iterator(AsyncGpuherd.events)
    history = blocking(AsyncGpuherd.history)
    health = blocking(AsyncGpuherd.health)
    close = blocking(AsyncGpuherd.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Gpuherd({self.url!r})"


class Rented:
    """An instance for the length of a `with`."""

    def __init__(self, rental: Rental, thread: CallingThread) -> None:
        self._rental = rental
        self._thread = thread

    def __enter__(self) -> Instance:
        try:
            return self._thread.run(self._rental.begin())
        except BaseException as error:
            self._end(error)
            raise

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        try:
            self._thread.run(self._rental.end(error))
        except BaseException as interrupt:
            # A second interrupt has ended the release. It carries the warning out of the program.
            if not isinstance(interrupt, Exception) and self._rental.warning:
                interrupt.add_note(self._rental.warning)
            raise


def _close_forgotten(client: AsyncGpuherd) -> None:
    """Close the connections of a client that its owner did not close."""
    run_in_background(client.close())
