"""The floors on a market of two offers, where each can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from bench.month.floors import Served, floors, unservable_s
from bench.month.market import Market, Quote
from bench.month.users import Habit, Rental
from bench.month.weather import PULL_S, draw_weather

PLAN = draw_weather(7, 30)
DEAR = Quote("GPU", "us-ca-6", Fraction(3, 10), Fraction(6, 10))
CHEAP = Quote("GPU", "eu-gb-1", Fraction(1, 10), Fraction(2, 10))
OTHER = Quote("other GPU", "eu-gb-1", Fraction(1, 100), Fraction(1, 100))
# The cheap one is there in the second hour only, and nothing at all after the third.
MARKET = Market((0.0, 3600.0, 7200.0, 10800.0), ((DEAR, OTHER), (DEAR, CHEAP), (DEAR,), ()))
RENTAL = Rental(0, 0.0, Habit.INTERACTIVE, 3600.0, "GPU", 60, (), Decimal(1), 0.0)
BOOT_H = Fraction(PULL_S) / 3600


def test_floor_a_is_the_cheapest_offer_of_each_moment_and_b_has_the_boot() -> None:
    found = floors([Served(RENTAL, [(1800.0, 9000.0)])], MARKET, PLAN)
    assert found.a_usd == Fraction(3, 10) * Fraction(1, 2) + Fraction(1, 10) + Fraction(3, 10) * Fraction(
        1, 2
    )
    assert found.b_usd == found.a_usd + DEAR.spot_usd * BOOT_H
    assert found.boots == 1


def test_only_offers_that_fit_the_wish_count() -> None:
    elsewhere = replace(RENTAL, clusters=("us-ca-6",))
    assert floors([Served(elsewhere, [(3600.0, 7200.0)])], MARKET, PLAN).a_usd == Fraction(3, 10)
    on_demand = replace(RENTAL, habit=Habit.ON_DEMAND)
    assert floors([Served(on_demand, [(3600.0, 7200.0)])], MARKET, PLAN).a_usd == Fraction(2, 10)


def test_a_disk_is_paid_for_also_after_the_stop_as_long_as_it_is_wanted() -> None:
    big = replace(RENTAL, disk_gb=540)
    disk = Fraction(480 * 5, 24_000)
    found = floors([Served(big, [(3600.0, 7200.0)], stopped_s=1800.0)], MARKET, PLAN)
    assert found.a_usd == Fraction(1, 10) + disk * Fraction(3, 2)


def test_where_nothing_is_offered_whoever_has_a_machine_keeps_it() -> None:
    assert floors([Served(RENTAL, [(7200.0, 14400.0)])], MARKET, PLAN).a_usd == Fraction(6, 10)
    assert unservable_s(RENTAL, [(7200.0, 14400.0)], MARKET) == 3600.0


def test_a_long_rental_that_asks_for_replacement_boots_again_and_what_is_not_served_costs_nothing() -> None:
    steady = Market((0.0,), ((CHEAP,),))
    long = replace(RENTAL, habit=Habit.BATCH)
    assert floors([Served(long, [(0.0, 20 * 86_400.0)])], steady, PLAN).boots > 5
    assert floors([Served(long, [])], steady, PLAN).b_usd == 0
