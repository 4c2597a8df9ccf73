"""Orphans: the ledger, the collector, and the orders an operator may give."""

from __future__ import annotations

from gpuherd.bootstrap.cloud import CloudLink
from gpuherd.bootstrap.stores import Stores
from gpuherd.clock import Clock, Ids
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.entrypoints.plane import OrphanServices
from gpuherd.settings import Settings
from gpuherd.usecases.cloud.catalogue import CatalogueCache
from gpuherd.usecases.cloud.observe import ObserveCloud
from gpuherd.usecases.events.record import EventRecorder
from gpuherd.usecases.jobs.kinds import JobFactory
from gpuherd.usecases.orphans.adopt import AdoptOrphan
from gpuherd.usecases.orphans.collect import CollectOrphans
from gpuherd.usecases.orphans.events import OrphanEvents
from gpuherd.usecases.orphans.execute_order import ExecuteOrphanOrder
from gpuherd.usecases.orphans.find import FindOrphan
from gpuherd.usecases.orphans.ledger import UpdateOrphanLedger
from gpuherd.usecases.orphans.order import OrderOrphan


def build_orphans(
    settings: Settings,
    stores: Stores,
    link: CloudLink,
    observer: ObserveCloud,
    event_recorder: EventRecorder,
    catalogue: CatalogueCache,
    job_factory: JobFactory,
    clock: Clock,
    ids: Ids,
    settling: SettlingPolicy,
) -> OrphanServices:
    """Return everything about orphans, ready to be run and asked."""
    orphans, cloud, installation = stores.orphans, link.cloud, stores.installation
    orphan_events = OrphanEvents(event_recorder, clock)
    execute_order = ExecuteOrphanOrder(orphans, cloud, clock)
    find = FindOrphan(orphans, cloud, clock, installation)
    return OrphanServices(
        ledger=orphans,
        collect=CollectOrphans(
            stores.collector_orphans,
            UpdateOrphanLedger(
                stores.collector_orphans, cloud, catalogue, orphan_events, clock, settling, installation
            ),
            ExecuteOrphanOrder(stores.collector_orphans, cloud, clock),
            stores.flags,
            clock,
            settling,
            lambda: observer.latest,
            link.breaker_state,
            auto_delete=settings.collect == "delete",
            leadership=stores.membership.leadership,
        ),
        find=find,
        order=OrderOrphan(orphans, find, execute_order, clock),
        adopt=AdoptOrphan(
            orphans,
            stores.instances,
            stores.book,
            find,
            cloud,
            catalogue,
            event_recorder,
            job_factory,
            clock,
            ids,
            settings.instance_max_wait,
            installation,
        ),
    )
