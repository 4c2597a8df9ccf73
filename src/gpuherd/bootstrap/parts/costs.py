"""Money: reports, what still costs, the balance, and the comparison with the provider's bill."""

from __future__ import annotations

from gpuherd.bootstrap.parts.shared import Shared
from gpuherd.bootstrap.ports import Ports
from gpuherd.entrypoints.plane import CostServices
from gpuherd.usecases.costs.events import CostEvents
from gpuherd.usecases.costs.leftovers import ListLeftovers
from gpuherd.usecases.costs.list_label_keys import ListLabelKeys
from gpuherd.usecases.costs.read_balance import ReadBalance
from gpuherd.usecases.costs.read_hourly_now import ReadHourlyNow
from gpuherd.usecases.costs.reconcile import ReconcileDay
from gpuherd.usecases.costs.report import ReportCosts


def build_cost_events(ports: Ports, shared: Shared) -> CostEvents:
    """Return what tells of money."""
    stores = ports.stores
    return CostEvents(stores.account_events, shared.event_recorder, stores.flags, ports.clock)


def build_costs(ports: Ports, cost_events: CostEvents) -> CostServices:
    """Return what the outside may ask about money."""
    stores, billing, clock = ports.stores, ports.billing, ports.clock
    return CostServices(
        report=ReportCosts(stores.costs, clock),
        label_keys=ListLabelKeys(stores.costs, clock),
        hourly_now=ReadHourlyNow(stores.costs),
        leftovers=ListLeftovers(stores.costs, stores.instances, billing, clock),
        balance=ReadBalance(billing, stores.costs, clock),
        reconcile=ReconcileDay(stores.costs, billing, cost_events, clock),
    )
