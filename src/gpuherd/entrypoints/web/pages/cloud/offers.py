"""`/offers`: what can be rented now, where, and for how much."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.rendering import page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.price_chart import BAR_WIDTH, price_groups
from gpuherd.usecases.cloud.catalogue import OFFERS_TTL_S


async def show(request: Request) -> Response:
    """Show every offer with its prices."""
    offers = await plane_of(request).catalogue.offers(BillingMode.SPOT)
    return page(
        request,
        "offers.html",
        groups=price_groups(offers),
        total=len(offers),
        bar_width=BAR_WIDTH,
        minutes=int(OFFERS_TTL_S // 60),
    )


ROUTES: Routes = {("GET", "/offers"): show}
