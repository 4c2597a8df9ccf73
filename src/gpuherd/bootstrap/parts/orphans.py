"""Machines that no instance has: the ledger, the collector, and what people order."""

from __future__ import annotations

from gpuherd.bootstrap.parts.shared import Shared
from gpuherd.bootstrap.ports import Ports, Values
from gpuherd.entrypoints.plane import OrphanServices
from gpuherd.usecases.orphans.adopt import AdoptOrphan
from gpuherd.usecases.orphans.collect import CollectOrphans
from gpuherd.usecases.orphans.events import OrphanEvents
from gpuherd.usecases.orphans.execute_order import ExecuteOrphanOrder
from gpuherd.usecases.orphans.find import FindOrphan
from gpuherd.usecases.orphans.ledger import UpdateOrphanLedger
from gpuherd.usecases.orphans.list_open import ListOrphans
from gpuherd.usecases.orphans.order import OrderOrphan


def build_orphans(ports: Ports, values: Values, shared: Shared) -> OrphanServices:
    """Return what finds, collects, deletes and adopts machines that no instance has."""
    stores, cloud, clock, installation = ports.stores, ports.cloud, ports.clock, ports.stores.installation
    orphans, fenced = stores.orphans, stores.collector_orphans
    find = FindOrphan(orphans, ports.browse_cloud or cloud, clock, installation, values.settling)
    return OrphanServices(
        list_open=ListOrphans(orphans, stores.flags),
        collect=CollectOrphans(
            orphans=fenced,
            update_ledger=UpdateOrphanLedger(
                orphans=fenced,
                instances=stores.instances,
                cloud=ports.watch_cloud or cloud,
                catalogue=shared.catalogue,
                orphan_events=OrphanEvents(shared.event_recorder, clock),
                alarm=shared.alarm,
                clock=clock,
                settling=values.settling,
                installation=installation,
            ),
            execute_order=ExecuteOrphanOrder(fenced, cloud, clock),
            flags=stores.flags,
            clock=clock,
            settling=values.settling,
            latest_list=lambda: shared.observer.latest,
            breaker_state=ports.breaker_state,
            auto_delete=values.auto_delete,
            leadership=ports.leadership,
        ),
        find=find,
        order=OrderOrphan(orphans, find, ExecuteOrphanOrder(orphans, cloud, clock), clock),
        adopt=AdoptOrphan(
            orphans=orphans,
            instances=stores.instances,
            jobs=stores.book,
            find=find,
            cloud=cloud,
            catalogue=shared.catalogue,
            event_recorder=shared.event_recorder,
            job_factory=shared.job_factory,
            clock=clock,
            ids=ports.ids,
            max_wait=values.instance_max_wait,
            installation=installation,
        ),
    )
