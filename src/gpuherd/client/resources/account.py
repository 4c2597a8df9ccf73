"""The account as a whole: what is sold, what runs there, what nobody has, and how the server is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Unpack

from gpuherd.client.effects import Effects
from gpuherd.client.methods import Resource, api_method, following
from gpuherd.client.models.account import (
    CloudTrust,
    Comprehensive,
    Creates,
    Health,
    Orphan,
    Orphans,
    Product,
    Region,
    Sync,
    Template,
)
from gpuherd.client.models.instance import EventPage, Instance
from gpuherd.client.models.plan import HeldPlan, Plan
from gpuherd.client.paging import Items, items_of
from gpuherd.client.streams.events import HISTORY, EventEffects, EventFilter, OnBreak, OnResume, follow
from gpuherd.client.transport.wire import Request, get, path_segment
from gpuherd.client.wish import Wish, create_body

# Of a plan: the server waits for the cloud's catalogue, unlike in a create.
PLAN_TIMEOUT_S = 60.0
PAGE = 100


class AccountMethods(Resource):
    """What is asked of `herd` itself."""

    @api_method
    def plan(
        self,
        product_name: str | Sequence[str],
        template_id: str | int | None = None,
        *,
        name: str | None = None,
        hold: bool = False,
        **wish: Unpack[Wish],
    ) -> Effects[Plan]:
        """Return what a create like this would try, in which order and for how much. Nothing is rented.

        With `hold` it has a `plan_id`, if it fits: `instances.rent_plan` rents it, once, and never for more.
        """
        body = create_body(name, product_name, template_id, wish)
        if hold:
            body["hold"] = True
        timeout_s = max(self._caller.timeout_s, PLAN_TIMEOUT_S)
        request = Request("POST", "/api/plans", body=body, is_read_only=True, timeout_s=timeout_s)
        return Plan.of((yield from self._caller.call(request)))

    @api_method
    def held_plan(self, plan_id: str) -> Effects[HeldPlan]:
        """Return a plan that is held: what is rented by it, for how much, until when."""
        return HeldPlan.of((yield from self._caller.call(get(f"/api/plans/{path_segment(plan_id)}"))))

    @api_method
    def products(
        self, product_name: str | None = None, *, billing_mode: Literal["spot", "onDemand"] | None = None
    ) -> Effects[Items[Product]]:
        """Return what can be rented, with price and stock in each region."""
        question = get("/api/products", productName=product_name, billingMode=billing_mode)
        return items_of((yield from self._caller.call(question)), "products", Product.of)

    @api_method
    def templates(self) -> Effects[Items[Template]]:
        """Return what can run on a machine."""
        return items_of((yield from self._caller.call(get("/api/templates"))), "templates", Template.of)

    @api_method
    def template(self, template_id: str | int) -> Effects[Template]:
        """Return one template."""
        return Template.of(
            (yield from self._caller.call(get(f"/api/templates/{path_segment(str(template_id))}")))
        )

    @api_method
    def regions(self) -> Effects[Items[Region]]:
        """Return the places, under all the names that may be used for them."""
        return items_of((yield from self._caller.call(get("/api/regions"))), "regions", Region.of)

    @api_method
    def comprehensive(
        self, *, include_novita_only: bool = True, sync_local_state: bool = False
    ) -> Effects[Comprehensive]:
        """Return what gpuherd remembers merged with everything on the account."""
        question = get(
            "/api/instances/comprehensive",
            includeNovitaOnly=include_novita_only,
            syncLocalState=sync_local_state,
        )
        return Comprehensive.of((yield from self._caller.call(question)))

    @api_method
    def sync(self) -> Effects[Sync]:
        """Let the server look at the cloud now, instead of at its next turn."""
        return Sync.of((yield from self._caller.change("POST", "/api/sync")))

    @api_method
    def creates(self) -> Effects[Creates]:
        """Return whether machines are rented, and why not."""
        return Creates.of((yield from self._caller.call(get("/api/creates"))))

    @api_method
    def resume_creates(self) -> Effects[Creates]:
        """Let machines be rented again, after the reason why they were not was seen to."""
        return Creates.of((yield from self._caller.change("POST", "/api/creates/resume")))

    @following
    def events(
        self,
        instance: str | Instance | None = None,
        *,
        type: str | None = None,
        since: int | None = None,
        on_break: OnBreak | None = None,
        on_resume: OnResume | None = None,
    ) -> EventEffects:
        """Return what happens as it happens, without an end: of one instance, or of all that one may see.

        With `since`, the id of an event, first what has happened after it. A broken connection is made anew,
        and nothing is missed or told twice; `on_break` is called when it breaks, `on_resume` when it is back.
        """
        return follow(self._caller, _wanted(instance, type), since, on_break, on_resume)

    @api_method
    def history(
        self,
        instance: str | Instance | None = None,
        *,
        type: str | None = None,
        since: int | None = None,
        limit: int = PAGE,
    ) -> Effects[EventPage]:
        """Return the latest events, newest first; with `since`, those after that event, oldest first."""
        wanted = _wanted(instance, type)
        question = get(HISTORY, instance=wanted.instance, type=wanted.type, limit=limit, lastEventId=since)
        return EventPage.of((yield from self._caller.call(question)))

    @api_method
    def health(self) -> Effects[Health]:
        """Return how the server is. An unhealthy one is an answer, not an error."""
        question = replace(get("/health"), accepted_statuses=frozenset({503}))
        return Health.of((yield from self._caller.call(question)))


class CloudMethods(Resource):
    """`herd.cloud`: what of the cloud is not believed, and the word of an admin."""

    @api_method
    def get(self) -> Effects[CloudTrust]:
        """Return what is not believed, with the reasons."""
        return CloudTrust.of((yield from self._caller.call(get("/api/cloud"))))

    @api_method
    def confirm_account(self) -> Effects[CloudTrust]:
        """Say that the key is of the account on which the machines are."""
        return CloudTrust.of((yield from self._caller.change("POST", "/api/cloud/confirm-account")))

    @api_method
    def confirm_loss(self) -> Effects[CloudTrust]:
        """Say that the machines which are missing now are gone."""
        return CloudTrust.of((yield from self._caller.change("POST", "/api/cloud/confirm-loss")))


class OrphanMethods(Resource):
    """`herd.orphans`: machines on the account that no instance has."""

    @api_method
    def list(self, verdict: Literal["surplus", "unrecorded", "foreign"] | None = None) -> Effects[Orphans]:
        """Return them all, with what they cost."""
        return Orphans.of((yield from self._caller.call(get("/api/orphans", verdict=verdict))))

    @api_method
    def get(self, orphan: str | Orphan) -> Effects[Orphan]:
        """Return one, by the cloud's id."""
        return Orphan.of((yield from self._caller.call(get(_path(orphan)))))

    @api_method
    def adopt(self, orphan: str | Orphan) -> Effects[Instance]:
        """Make it an instance."""
        return Instance.of((yield from self._caller.change("POST", f"{_path(orphan)}/adopt")))

    @api_method
    def stop(self, orphan: str | Orphan) -> Effects[Orphan]:
        """Stop it; its disk stays."""
        return Orphan.of((yield from self._caller.change("POST", f"{_path(orphan)}/stop")))

    @api_method
    def delete(self, orphan: str | Orphan) -> Effects[Orphan]:
        """Remove it with all its data."""
        return Orphan.of((yield from self._caller.change("POST", f"{_path(orphan)}/delete")))

    @api_method
    def resume(self) -> Effects[Items[Orphan]]:
        """Release the brake, and return what it had held back and is deleted now."""
        answer = yield from self._caller.change("POST", "/api/orphans/resume")
        return items_of(answer, "released", Orphan.of)


def _wanted(instance: str | Instance | None, type: str | None) -> EventFilter:
    return EventFilter(instance.id if isinstance(instance, Instance) else instance, type)


def _path(orphan: str | Orphan) -> str:
    return f"/api/orphans/{path_segment(orphan if isinstance(orphan, str) else orphan.cloud_id)}"
