"""The account as a whole: what is sold, what runs there, what nobody has, and how the server is."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack

from gpuherd.client.following import Following, follow
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
from gpuherd.client.steps import Steps
from gpuherd.client.verbs import Resource, following, verb
from gpuherd.client.wire import Request, get, listed, part
from gpuherd.client.wish import Wish, create_body


class AccountVerbs(Resource):
    """What is asked of `herd` itself."""

    @verb
    def plan(
        self,
        product_name: str,
        template_id: str | int,
        *,
        name: str | None = None,
        **wish: Unpack[Wish],
    ) -> Steps[Plan]:
        """Return what a create like this would try, in which order and for how much. Nothing is rented."""
        body = create_body(name, product_name, template_id, wish)
        request = Request("POST", "/api/plans", body=body, changes_nothing=True)
        return Plan.of((yield from self._asker.ask(request)))

    @verb
    def products(
        self, product_name: str | None = None, *, billing_mode: Literal["spot", "onDemand"] | None = None
    ) -> Steps[tuple[Product, ...]]:
        """Return what can be rented, with price and stock in each region."""
        question = get("/api/products", productName=product_name, billingMode=billing_mode)
        answer = yield from self._asker.ask(question)
        return tuple(Product.of(it) for it in listed(answer, "products"))

    @verb
    def templates(self) -> Steps[tuple[Template, ...]]:
        """Return what can run on a machine."""
        answer = yield from self._asker.ask(get("/api/templates"))
        return tuple(Template.of(it) for it in listed(answer, "templates"))

    @verb
    def template(self, template_id: str | int) -> Steps[Template]:
        """Return one template."""
        return Template.of((yield from self._asker.ask(get(f"/api/templates/{part(str(template_id))}"))))

    @verb
    def regions(self) -> Steps[tuple[Region, ...]]:
        """Return the places, under all the names that may be used for them."""
        answer = yield from self._asker.ask(get("/api/regions"))
        return tuple(Region.of(it) for it in listed(answer, "regions"))

    @verb
    def comprehensive(
        self, *, include_novita_only: bool = True, sync_local_state: bool = False
    ) -> Steps[Comprehensive]:
        """Return what gpuherd remembers merged with everything on the account."""
        question = get(
            "/api/instances/comprehensive",
            includeNovitaOnly=include_novita_only,
            syncLocalState=sync_local_state,
        )
        return Comprehensive.of((yield from self._asker.ask(question)))

    @verb
    def sync(self) -> Steps[Sync]:
        """Let the server look at the cloud now, instead of at its next turn."""
        return Sync.of((yield from self._asker.change("POST", "/api/sync")))

    @following
    def events(
        self, instance: str | Instance | None = None, *, type: str | None = None, since: int | None = None
    ) -> Following:
        """Return what happens as it happens, without an end: of one instance, or of all that one may see.

        With `since`, the id of an event, first what has happened after it. A broken connection is made anew,
        and nothing is missed or told twice.
        """
        return follow(self._asker, instance.id if isinstance(instance, Instance) else instance, type, since)

    @verb
    def health(self) -> Steps[Health]:
        """Return how the server is. An unhealthy one is an answer, not an error."""
        question = replace(get("/health"), also_fine=frozenset({503}))
        return Health.of((yield from self._asker.ask(question)))


class OrphanVerbs(Resource):
    """`herd.orphans`: machines on the account that no instance has."""

    @verb
    def list(self, verdict: Literal["surplus", "unrecorded", "foreign"] | None = None) -> Steps[Orphans]:
        """Return them all, with what they cost."""
        return Orphans.of((yield from self._asker.ask(get("/api/orphans", verdict=verdict))))

    @verb
    def get(self, orphan: str | Orphan) -> Steps[Orphan]:
        """Return one, by the cloud's id."""
        return Orphan.of((yield from self._asker.ask(get(_path(orphan)))))

    @verb
    def adopt(self, orphan: str | Orphan) -> Steps[Instance]:
        """Make it an instance."""
        return Instance.of((yield from self._asker.change("POST", f"{_path(orphan)}/adopt")))

    @verb
    def stop(self, orphan: str | Orphan) -> Steps[Orphan]:
        """Stop it; its disk stays."""
        return Orphan.of((yield from self._asker.change("POST", f"{_path(orphan)}/stop")))

    @verb
    def delete(self, orphan: str | Orphan) -> Steps[Orphan]:
        """Remove it with all its data."""
        return Orphan.of((yield from self._asker.change("POST", f"{_path(orphan)}/delete")))

    @verb
    def resume(self) -> Steps[tuple[Orphan, ...]]:
        """Release the brake, and return what it had held back and is deleted now."""
        return Released.of((yield from self._asker.change("POST", "/api/orphans/resume"))).released


def _path(orphan: str | Orphan) -> str:
    return f"/api/orphans/{part(orphan if isinstance(orphan, str) else orphan.cloud_id)}"
