"""Money: what was spent, what still costs, what is left, and what the provider says of it."""

from __future__ import annotations

from datetime import date, datetime

from gpuherd.client.effects import Effects
from gpuherd.client.methods import Resource, api_method
from gpuherd.client.models.costs import Balance, Bill, Costs, Leftovers
from gpuherd.client.transport.wire import get

Moment = date | datetime | str


class CostMethods(Resource):
    """`herd.costs`."""

    @api_method
    def get(
        self, since: Moment | None = None, until: Moment | None = None, *, group_by: str | None = None
    ) -> Effects[Costs]:
        """Return what a period has cost so far, `until` excluded; the last thirty days if nothing is said.

        `group_by`: instance, day, product, region, key, lineage, or `label:KEY`.
        """
        question = get("/api/costs", **{"from": _text(since), "to": _text(until)}, groupBy=group_by)
        return Costs.of((yield from self._caller.call(question)))

    @api_method
    def leftovers(self) -> Effects[Leftovers]:
        """Return everything that still costs money, the dearest first."""
        return Leftovers.of((yield from self._caller.call(get("/api/leftovers"))))

    @api_method
    def balance(self) -> Effects[Balance]:
        """Return what is left on the account, and how long it lasts."""
        return Balance.of((yield from self._caller.call(get("/api/balance"))))

    @api_method
    def bill(self, day: date | str | None = None) -> Effects[Bill]:
        """Return a day by the meter and by the provider's bill, as it was last read; or the day before."""
        return Bill.of((yield from self._caller.call(get("/api/costs/bill", day=_text(day)))))

    @api_method
    def reconcile(self, day: date | str) -> Effects[Bill]:
        """Let the server read the provider's bill of a day now, and compare."""
        return Bill.of((yield from self._caller.change("POST", "/api/costs/reconcile", {"day": _text(day)})))


def _text(moment: Moment | None) -> str | None:
    if isinstance(moment, datetime):
        # A time without a zone is the reader's own, as everywhere in Python.
        return moment.astimezone().isoformat()
    return moment.isoformat() if isinstance(moment, date) else moment
