"""The market of the simulated world: prices and stock, moved by command or by the weather."""

from __future__ import annotations

from dataclasses import replace

from gpuherd.simulator.catalogue import Product
from gpuherd.simulator.money.charge import Dated
from gpuherd.simulator.money.weather import Weather, stock_turn_s, walked
from gpuherd.simulator.world.machine import SimulatedMachine
from gpuherd.simulator.world.state import WorldState
from gpuherd.simulator.world.timeline import Due, TimelineEvent

MARKET = frozenset({Due.PRICE, Due.STOCK})


def set_price(
    state: WorldState, product_id: str, *, price: int | None = None, spot_price: int | None = None
) -> Product:
    """Change what a product costs from now on, in price units; running ones may follow."""
    product = state.catalogue.product(product_id)
    if product is None:
        raise ValueError(f"there is no product {product_id!r}")
    changed = replace(
        product,
        price=product.price if price is None else price,
        spot_price=product.spot_price if spot_price is None else spot_price,
    )
    state.catalogue = replace(
        state.catalogue,
        products=tuple(changed if it.id == product_id else it for it in state.catalogue.products),
    )
    if state.weather.price_follows:
        for machine in state.listed.values():
            if machine.request.product_id == product_id:
                reprice(state, machine)
    return changed


def reprice(state: WorldState, machine: SimulatedMachine) -> None:
    """Let a machine cost what its product costs today, from now on."""
    today = price_today(state, machine)
    if today is not None and today != machine.price:
        machine.prices = [*machine.prices, Dated(state.now(), today)]


def price_today(state: WorldState, machine: SimulatedMachine) -> int | None:
    """Return the price that a new machine like this one would have, if it is sold at all."""
    product = state.catalogue.product(machine.request.product_id)
    if product is None:
        return None
    return product.spot_price if machine.request.billing_mode == "spot" else product.price


def set_weather(state: WorldState, weather: Weather) -> None:
    """Let the market move as told from now on; what was planned before is given up."""
    state.tick()
    state.weather = weather
    state.timeline.drop(MARKET)
    state.stock_levels.withheld.clear()
    state.first_prices = {it.id: it.spot_price for it in state.catalogue.products}
    if weather.price_range:
        state.timeline.add(state.now() + weather.walk_every_s, Due.PRICE, "")
    for product_id, cluster_id, _ in state.stock_levels:
        _plan_stock(state, product_id, cluster_id)


def handle_market(state: WorldState, event: TimelineEvent) -> None:
    """Carry out a move of the market and plan the next."""
    if event.due is Due.STOCK:
        state.stock_levels.withheld ^= {(event.product_id, event.cluster_id)}
        _plan_stock(state, event.product_id, event.cluster_id)
        return
    for product in state.catalogue.products:
        if product.spot_price:
            began_at = state.first_prices.get(product.id, product.spot_price)
            price = walked(product, began_at, state.weather, state.weather_rng)
            set_price(state, product.id, spot_price=price)
    state.timeline.add(state.now() + state.weather.walk_every_s, Due.PRICE, "")


def _plan_stock(state: WorldState, product_id: str, cluster_id: str) -> None:
    in_stock = (product_id, cluster_id) not in state.stock_levels.withheld
    seconds = stock_turn_s(state.weather, state.weather_rng, in_stock=in_stock)
    if seconds is not None:
        at = state.now() + seconds
        state.timeline.add(at, Due.STOCK, "", product_id=product_id, cluster_id=cluster_id)
