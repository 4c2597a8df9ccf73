"""What several subjects use, in the background and in the foreground."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.bootstrap.parts.access import build_key_secrets, build_keys
from gpuherd.bootstrap.parts.cloud import build_alarm, build_observer
from gpuherd.bootstrap.ports import Ports, Values
from gpuherd.entrypoints.plane import KeyServices
from gpuherd.usecases.budgets.cache import BudgetCache
from gpuherd.usecases.capacity.line import CapacityLine
from gpuherd.usecases.capacity.watch import WatchCapacity
from gpuherd.usecases.cloud.account import AccountGuard
from gpuherd.usecases.cloud.catalogue import CatalogueCache
from gpuherd.usecases.cloud.installation_alarm import InstallationAlarm
from gpuherd.usecases.cloud.observe import ObserveCloud
from gpuherd.usecases.cloud.vanishing import VanishingBrake
from gpuherd.usecases.events.record import EventRecorder
from gpuherd.usecases.jobs.kinds import JobFactory
from gpuherd.usecases.secrets.environment import Environments
from gpuherd.usecases.succession.end_lineage import EndLineage
from gpuherd.usecases.succession.make_heir import MakeHeir
from gpuherd.usecases.webhooks.endpoints import EndpointCache
from gpuherd.usecases.webhooks.key_secrets import KeyWebhookSecrets


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What both the background and the foreground use."""

    job_factory: JobFactory
    endpoint_cache: EndpointCache
    keys: KeyServices
    key_secrets: KeyWebhookSecrets
    budget_cache: BudgetCache
    event_recorder: EventRecorder
    catalogue: CatalogueCache
    # The same, for what people ask.
    browsed_catalogue: CatalogueCache
    account: AccountGuard
    vanishing: VanishingBrake
    observer: ObserveCloud
    alarm: InstallationAlarm
    capacity_line: CapacityLine
    watch_capacity: WatchCapacity
    environments: Environments
    make_heir: MakeHeir
    end_lineage: EndLineage


def build_shared(ports: Ports, values: Values) -> Shared:
    """Return what the other parts are built upon."""
    stores, clock = ports.stores, ports.clock
    job_factory = JobFactory(ports.ids, values.max_retry_attempts)
    endpoint_cache = EndpointCache(stores.endpoints, values.webhook_keys, clock)
    keys = build_keys(ports, values)
    catalogue = CatalogueCache(ports.cloud, clock, values.disk)
    account = AccountGuard(
        flags=stores.flags,
        observations=stores.observations,
        clock=clock,
        account=stores.account,
        confirmed=stores.account_confirmed,
    )
    vanishing = VanishingBrake(
        flags=stores.flags, observations=stores.observations, clock=clock, settling=values.settling
    )
    browsed_catalogue = catalogue.for_browsing(ports.browse_cloud or ports.cloud)
    capacity_line = CapacityLine(
        stores.capacity, catalogue, browsed_catalogue, clock, is_shared=ports.replica_flags is not None
    )
    event_recorder = EventRecorder(clock, ports.ids, job_factory, endpoint_cache.current)
    budget_cache = BudgetCache(stores.budgets)
    return Shared(
        environments=Environments(ports.sealer, stores.secrets),
        make_heir=MakeHeir(
            instances=stores.instances,
            event_recorder=event_recorder,
            job_factory=job_factory,
            clock=clock,
            ids=ports.ids,
            max_wait=values.instance_max_wait,
            budgets=budget_cache,
            budget_rules=values.budget_rules,
        ),
        end_lineage=EndLineage(stores.instances, event_recorder, clock, ports.ids, stores.book, job_factory),
        capacity_line=capacity_line,
        watch_capacity=WatchCapacity(capacity_line, stores.capacity, stores.book, job_factory, clock),
        account=account,
        vanishing=vanishing,
        job_factory=job_factory,
        endpoint_cache=endpoint_cache,
        keys=keys,
        budget_cache=budget_cache,
        key_secrets=build_key_secrets(ports, values, keys.key_cache),
        event_recorder=event_recorder,
        catalogue=catalogue,
        browsed_catalogue=browsed_catalogue,
        observer=build_observer(ports, values, job_factory, account, vanishing, catalogue),
        alarm=build_alarm(ports, values),
    )
