"""What is told of budgets: it is about the account, and goes to endpoints alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gpuherd.contract.budget import BudgetNotice
from gpuherd.contract.codec.model import encode
from gpuherd.domain.budgets.budget import AtLimit, Budget
from gpuherd.domain.budgets.review import BudgetNews, Renewed, UsedUp, Warned
from gpuherd.domain.budgets.spending import Spending
from gpuherd.domain.costs.amount import usd_of
from gpuherd.domain.instance import events
from gpuherd.domain.instance.events import ACCOUNT, Event
from gpuherd.ports.events import AccountEvent
from gpuherd.usecases.describe.budget import describe_scope
from gpuherd.usecases.describe.costs import cents
from gpuherd.usecases.events.record import EventRecorder

_CONSEQUENCES = {
    AtLimit.WARN: "nothing is stopped",
    AtLimit.BLOCK: "nothing new is accepted",
    AtLimit.STOP: "what is in it is stopped",
    AtLimit.DELETE: "what is in it is deleted",
}


@dataclass(frozen=True)
class BudgetEvents:
    """Puts news of budgets into words, for the transaction in which they become true."""

    event_recorder: EventRecorder

    def told(
        self, budget: Budget, spending: Spending, news: Iterable[BudgetNews], now: datetime
    ) -> list[AccountEvent]:
        """Return the events that tell of a budget, with the webhooks that go with each."""
        return [
            AccountEvent(_event(budget, spending, it, now), self.event_recorder.account_outbox_entries)
            for it in news
        ]


def _event(budget: Budget, spending: Spending, news: BudgetNews, now: datetime) -> Event:
    spent = f"{cents(spending.spent)} of {cents(budget.amount)}"
    percent: int | None = None
    match news:
        case Warned(percent):
            type_, reason = events.BUDGET_WARNING, f"budget {budget.name!r} has spent {percent} %: {spent}"
        case UsedUp():
            type_ = events.BUDGET_EXHAUSTED
            reason = f"budget {budget.name!r} is used up ({spent}): {_CONSEQUENCES[budget.at_limit]}"
        case Renewed(why):
            type_, reason = events.BUDGET_RESET, f"budget {budget.name!r} can be spent again: {why}"
    notice = BudgetNotice(
        budget_id=budget.id,
        name=budget.name,
        scope=describe_scope(budget.scope),
        amount=usd_of(budget.amount),
        period=budget.period.value,
        spent=usd_of(spending.spent),
        hourly_now=usd_of(spending.hourly),
        percent=percent,
        at_limit=budget.at_limit.value,
    )
    return Event(ACCOUNT, 0, type_, now, reason=reason, details=encode(notice))
