"""The account as a whole: what is sold, what runs there, what nobody has, and how the server is."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack

from gpuherd.client.effects import Effects
from gpuherd.client.event_stream import EventEffects, follow
from gpuherd.client.methods import Resource, api_method, following
from gpuherd.client.models.account import (
    Comprehensive,
    Health,
    Orphan,
    Orphans,
    Product,
    Region,
    Released,
    Sync,
    Template,
)
from gpuherd.client.models.instance import Instance
from gpuherd.client.models.plan import Plan
from gpuherd.client.wire import Request, get, listed, path_segment
from gpuherd.client.wish import Wish, create_body


class AccountMethods(Resource):
    """What is asked of `herd` itself."""

    @api_method
    def plan(
        self,
        product_name: str,
        template_id: str | int,
        *,
        name: str | None = None,
        **wish: Unpack[Wish],
    ) -> Effects[Plan]:
        """Return what a create like this would try, in which order and for how much. Nothing is rented."""
        body = create_body(name, product_name, template_id, wish)
        request = Request("POST", "/api/plans", body=body, is_read_only=True)
        return Plan.of((yield from self._caller.call(request)))

    @api_method
    def products(
        self, product_name: str | None = None, *, billing_mode: Literal["spot", "onDemand"] | None = None
    ) -> Effects[tuple[Product, ...]]:
        """Return what can be rented, with price and stock in each region."""
        question = get("/api/products", productName=product_name, billingMode=billing_mode)
        answer = yield from self._caller.call(question)
        return tuple(Product.of(it) for it in listed(answer, "products"))

    @api_method
    def templates(self) -> Effects[tuple[Template, ...]]:
        """Return what can run on a machine."""
        answer = yield from self._caller.call(get("/api/templates"))
        return tuple(Template.of(it) for it in listed(answer, "templates"))

    @api_method
    def template(self, template_id: str | int) -> Effects[Template]:
        """Return one template."""
        return Template.of(
            (yield from self._caller.call(get(f"/api/templates/{path_segment(str(template_id))}")))
        )

    @api_method
    def regions(self) -> Effects[tuple[Region, ...]]:
        """Return the places, under all the names that may be used for them."""
        answer = yield from self._caller.call(get("/api/regions"))
        return tuple(Region.of(it) for it in listed(answer, "regions"))

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

    @following
    def events(
        self, instance: str | Instance | None = None, *, type: str | None = None, since: int | None = None
    ) -> EventEffects:
        """Return what happens as it happens, without an end: of one instance, or of all that one may see.

        With `since`, the id of an event, first what has happened after it. A broken connection is made anew,
        and nothing is missed or told twice.
        """
        return follow(self._caller, instance.id if isinstance(instance, Instance) else instance, type, since)

    @api_method
    def health(self) -> Effects[Health]:
        """Return how the server is. An unhealthy one is an answer, not an error."""
        question = replace(get("/health"), accepted_statuses=frozenset({503}))
        return Health.of((yield from self._caller.call(question)))


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
    def resume(self) -> Effects[tuple[Orphan, ...]]:
        """Release the brake, and return what it had held back and is deleted now."""
        return Released.of((yield from self._caller.change("POST", "/api/orphans/resume"))).released


def _path(orphan: str | Orphan) -> str:
    return f"/api/orphans/{path_segment(orphan if isinstance(orphan, str) else orphan.cloud_id)}"
