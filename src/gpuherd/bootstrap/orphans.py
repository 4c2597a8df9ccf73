"""Orphans: who keeps the ledger, who collects, and what the foreground may order."""

from __future__ import annotations

from gpuherd.bootstrap.cloud import CloudLink
from gpuherd.bootstrap.stores import Stores
from gpuherd.clock import Clock, Ids
from gpuherd.domain.sighting import Patience
from gpuherd.entrypoints.plane import OrphanDesk
from gpuherd.settings import Settings
from gpuherd.usecases.activity import Activities
from gpuherd.usecases.adopt_orphan import AdoptOrphan
from gpuherd.usecases.carry_out import CarryOut
from gpuherd.usecases.catalogue import Catalogue
from gpuherd.usecases.chronicle import Chronicle
from gpuherd.usecases.collect_orphans import CollectOrphans
from gpuherd.usecases.find_orphan import FindOrphan
from gpuherd.usecases.keep_ledger import KeepLedger
from gpuherd.usecases.observe_cloud import ObserveCloud
from gpuherd.usecases.order_orphan import OrderOrphan
from gpuherd.usecases.orphan_news import OrphanNews


def lay_out_orphans(
    settings: Settings,
    stores: Stores,
    link: CloudLink,
    observer: ObserveCloud,
    chronicle: Chronicle,
    catalogue: Catalogue,
    activities: Activities,
    clock: Clock,
    ids: Ids,
    patience: Patience,
) -> OrphanDesk:
    """Return everything about orphans, ready to be run and asked."""
    orphans, cloud, installation = stores.orphans, link.cloud, stores.installation
    news = OrphanNews(chronicle, clock)
    carry_out = CarryOut(orphans, cloud, clock)
    find = FindOrphan(orphans, cloud, clock, installation)
    return OrphanDesk(
        ledger=orphans,
        collect=CollectOrphans(
            stores.collected,
            KeepLedger(stores.collected, cloud, catalogue, news, clock, patience, installation),
            CarryOut(stores.collected, cloud, clock),
            stores.flags,
            clock,
            patience,
            lambda: observer.latest,
            link.breaker_state,
            deletes=settings.collect == "delete",
            duty=stores.membership.watch,
        ),
        find=find,
        order=OrderOrphan(orphans, find, carry_out, clock),
        adopt=AdoptOrphan(
            orphans,
            stores.instances,
            stores.book,
            find,
            cloud,
            catalogue,
            chronicle,
            activities,
            clock,
            ids,
            settings.instance_max_wait,
            installation,
        ),
    )
