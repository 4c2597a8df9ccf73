"""What the port of budgets promises, in memory, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuherd.adapters.sql import rental_tables, service_tables
from gpuherd.adapters.sql.database import Database
from gpuherd.domain.api_key import ADMIN
from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.errors import BudgetExhausted, Conflict, InvalidRequest, NotFound, StaleWrite
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.instance_state import VANISHED
from gpuherd.domain.instance.lease import Lease, Terms, term_of
from gpuherd.domain.instance.operation import Failure
from gpuherd.domain.money.budget import (
    AtLimit,
    Budget,
    BudgetRules,
    BudgetScope,
    Demand,
    ScopeKind,
)
from gpuherd.domain.money.meter_reading import subject_of_instance
from gpuherd.domain.money.period import BudgetPeriod
from gpuherd.domain.money.usage_span import (
    CostKind,
    CostSpan,
    CostSubject,
    Edge,
    PriceSource,
    Rate,
    nano_usd,
)
from gpuherd.ports.event_port import AccountEvent
from gpuherd.ports.instance_port import Change
from gpuherd.ports.webhook_port import OutboxEntries
from tests.support.budgets import USD
from tests.support.budgets import a_budget as budget_at
from tests.support.builders import a_running_instance, an_instance, instance_id
from tests.support.fake_clock import START, FakeClock
from tests.support.memory.store import MemoryStore
from tests.support.memory.tables import Tables
from tests.support.sql.databases import Store, all_at_once

HOUR = timedelta(hours=1)
RULES = BudgetRules()
PRICE = Decimal("0.4")
RED = BudgetScope(ScopeKind.LABEL, "team", "red")
ADAS = BudgetScope(ScopeKind.KEY, "ada")


def a_budget(n: int = 1, **changes: Any) -> Budget:
    return budget_at(START, **{"id": f"bud_{n}", "name": f"budget-{n}", **changes})


def deed(what: str = "budget.create") -> AuditRecord:
    return ADMIN.audit_record(what, "bud_1", START)


def wanting(n: int = 1, rules: BudgetRules = RULES, **changes: Any) -> Change:
    fields = {"owner": "ada", "expected_hourly_usd": PRICE, "labels": {"team": "red"}, **changes}
    return Change(an_instance(n, **fields), audit_record=deed(), judged_by=rules)


def rented(n: int, price: Decimal, **changes: Any) -> Instance:
    it = a_running_instance(n, owner="ada", **changes)
    assert it.rental is not None
    return replace(it, rental=replace(it.rental, gpu_hourly_usd=price))


def a_span(cloud_id: str, begin: datetime, hours: float | None = None, usd: Any = PRICE) -> CostSpan:
    edge = Edge(begin, begin)
    ended = None if hours is None else Edge(begin + hours * HOUR, begin + hours * HOUR)
    rate = Rate(nano_usd(Decimal(usd)), PriceSource.RENTAL)
    return CostSpan(cloud_id, CostKind.GPU, rate, edge, "pulling", ended, "" if ended is None else "stopped")


async def bill(store: Store, it: Instance, begin: datetime, hours: float | None = None) -> None:
    assert it.cloud_id is not None
    subject = subject_of_instance(it)
    await store.write_spans([a_span(it.cloud_id, begin, hours)], {it.cloud_id: subject})


async def refused(store: Store, change: Change) -> bool:
    try:
        await store.instances.add(change)
    except BudgetExhausted:
        return True
    return False


@pytest.fixture
def third_store(database: Any, database_url: str, store_clock: FakeClock) -> Iterator[Any]:
    """The same database as a third process sees it."""
    if isinstance(database, Tables):
        yield MemoryStore(database, store_clock, seed=3)
        return
    with closing(Database(database_url)) as third:
        yield Store(third, store_clock, seed=3)


class TestKeeping:
    async def test_all_of_it_comes_back(self, store: Store) -> None:
        it = a_budget(
            scope=RED,
            period=BudgetPeriod.WEEK,
            warn_percent=(10, 99),
            at_limit=AtLimit.DELETE,
            strict=True,
            told=(10,),
            exhausted=True,
        )
        await store.budgets.add(it, deed())
        assert await store.budgets.get("bud_1") == it
        assert await store.budgets.get("budget-1") == it
        assert await store.budgets.list_all() == (it,)

    async def test_names_are_unique(self, store: Store) -> None:
        await store.budgets.add(a_budget(), deed())
        await store.budgets.add(a_budget(2), deed())
        with pytest.raises(Conflict) as taken:
            await store.budgets.add(a_budget(3, name="budget-1"), deed())
        assert taken.value.code == "BUDGET_EXISTS"
        with pytest.raises(Conflict):
            await store.budgets.save(a_budget(2, name="budget-1"))
        assert [it.name for it in await store.budgets.list_all()] == ["budget-1", "budget-2"]

    async def test_a_save_is_refused_after_another(self, store: Store, other_store: Store) -> None:
        await store.budgets.add(a_budget(), deed())
        first = await store.budgets.save(a_budget(exhausted=True))
        assert first.version == 1
        with pytest.raises(StaleWrite):
            await other_store.budgets.save(a_budget(amount=1))
        assert await store.budgets.get("bud_1") == first

    @pytest.mark.proves("B4")
    async def test_what_is_told_is_written_with_the_budget_or_not_at_all(self, store: Store) -> None:
        await store.budgets.add(a_budget(), deed())
        told = AccountEvent(Event("account", 0, "budget.warning", START), lambda _: OutboxEntries((), ()))
        await store.budgets.save(a_budget(told=(50,)), [told])
        with pytest.raises(StaleWrite):
            await store.budgets.save(a_budget(told=(50,)), [told])
        assert len(await store.rows(rental_tables.event)) == 1

    async def test_what_was_removed_is_gone(self, store: Store) -> None:
        await store.budgets.add(a_budget(), deed())
        await store.budgets.remove("bud_1", deed("budget.delete"))
        with pytest.raises(NotFound) as missing:
            await store.budgets.get("bud_1")
        assert missing.value.code == "BUDGET_NOT_FOUND"
        with pytest.raises(NotFound):
            await store.budgets.remove("bud_1", deed("budget.delete"))
        with pytest.raises(StaleWrite):
            await store.budgets.save(a_budget())
        assert len(await store.rows(service_tables.audit)) == 2


class TestSpending:
    async def test_each_scope_has_what_belongs_to_it(self, store: Store) -> None:
        red = a_running_instance(1, owner="ada", labels={"team": "red"})
        blue = a_running_instance(2, owner="ada", labels={"team": "blue"})
        bobs = a_running_instance(3, owner="bob", labels={"team": "red"})
        for it in (red, blue, bobs):
            await store.instances.add(Change(it))
            await bill(store, it, START, 1 if it is red else None)
        stranger = CostSubject("stranger", None, None, START)
        await store.write_spans([a_span("stranger", START)], {"stranger": stranger})
        now = START + 2 * HOUR
        found = {
            scope: await store.budgets.spending(a_budget(scope=scope), now)
            for scope in (BudgetScope(), ADAS, RED)
        }
        rate = nano_usd(PRICE)
        assert {scope: (it.spent, it.hourly) for scope, it in found.items()} == {
            BudgetScope(): (7 * rate, 3 * rate),
            ADAS: (3 * rate, rate),
            RED: (3 * rate, rate),
        }

    async def test_a_period_has_its_own_part_of_what_goes_on_and_of_what_has_ended(
        self, store: Store
    ) -> None:
        for n, hours in ((1, None), (2, 25)):
            it = a_running_instance(n, owner="ada")
            await store.instances.add(Change(it))
            await bill(store, it, START, hours)
        now = START + 26 * HOUR
        rate = nano_usd(PRICE)
        today = await store.budgets.spending(a_budget(), now)
        assert (today.spent, today.hourly) == (3 * rate, rate)
        for period in (BudgetPeriod.MONTH, BudgetPeriod.TOTAL):
            assert (await store.budgets.spending(a_budget(period=period), now)).spent == 51 * rate

    async def test_nothing_costs_nothing(self, store: Store) -> None:
        found = await store.budgets.spending(a_budget(), START)
        assert (found.spent, found.hourly) == (0, 0)


class TestAccept:
    @pytest.mark.proves("B1")
    async def test_fifty_at_once_in_three_processes_are_ten(
        self, store: Store, other_store: Store, third_store: Store
    ) -> None:
        # A quarter of an hour at $0.40 is ten cents.
        await store.budgets.add(a_budget(amount=USD), deed())
        three = (store, other_store, third_store)
        answers = await all_at_once(50, lambda n: three[n % 3].instances.add(wanting(n + 1)))
        assert sum(isinstance(it, Instance) for it in answers) == 10
        assert sum(isinstance(it, BudgetExhausted) for it in answers) == 40
        assert len(await store.rows(rental_tables.instance)) == 10

    async def test_what_is_billed_counts_with_what_it_has_cost(self, store: Store) -> None:
        await store.budgets.add(a_budget(amount=USD * 22 // 100), deed())
        it = rented(1, PRICE, labels={"team": "red"})
        it = await store.instances.add(Change(it, audit_record=deed(), judged_by=RULES))
        other = await store.instances.add(wanting(2))
        assert await refused(store, wanting(3))
        # From now on it counts as what it has cost so far: nothing.
        await bill(store, it, START)
        assert not await refused(store, wanting(3))
        await store.clock.advance(60)
        assert await refused(store, wanting(4))
        await store.instances.update(Change(replace(other, status=Status.DELETED)))
        assert not await refused(store, wanting(4))

    async def test_only_budgets_that_it_is_in_are_asked(self, store: Store) -> None:
        await store.budgets.add(a_budget(1, scope=RED, amount=0), deed())
        await store.budgets.add(a_budget(2, scope=ADAS, amount=0), deed())
        assert not await refused(store, wanting(1, owner="bob", labels={"team": "blue"}))
        assert await refused(store, wanting(2, owner="bob"))
        assert await refused(store, wanting(3, labels={}))

    async def test_who_is_not_judged_is_not_refused(self, store: Store) -> None:
        await store.budgets.add(a_budget(amount=0), deed())
        assert not await refused(store, replace(wanting(), judged_by=None))

    async def test_one_that_is_used_up_refuses_until_tomorrow(self, store: Store) -> None:
        await store.budgets.add(a_budget(exhausted=True), deed())
        assert await refused(store, wanting())
        await store.clock.advance(86_400)
        assert not await refused(store, wanting())

    async def test_a_strict_one_wants_a_lease_and_counts_all_of_it(self, store: Store) -> None:
        await store.budgets.add(a_budget(amount=2 * USD, strict=True), deed())
        with pytest.raises(InvalidRequest) as raised:
            await store.instances.add(wanting(1))
        assert raised.value.code == "LEASE_REQUIRED"
        two_hours = Terms(Lease(seconds=7200))
        for n in (1, 2):
            assert not await refused(store, wanting(n, terms=two_hours))
        assert await refused(store, wanting(3, terms=two_hours))
        assert not await refused(store, wanting(3, terms=Terms(Lease(seconds=3600))))

    async def test_what_is_left_of_a_lease_counts_in_a_strict_one(self, store: Store) -> None:
        await store.budgets.add(a_budget(amount=USD, strict=True), deed())
        term = term_of(7200, START, timedelta(0))
        fields: dict[str, Any] = {"terms": Terms(Lease(seconds=7200)), "lease_term": term}
        running = await store.instances.add(wanting(1, **fields))
        assert await refused(store, wanting(2, terms=Terms(Lease(seconds=3600))))
        await store.clock.advance(5400)
        assert not await refused(store, wanting(2, terms=Terms(Lease(seconds=3600))))
        longer = replace(running, lease_term=term_of(7200, store.clock.now(), timedelta(0)))
        only_strict = replace(RULES, only_strict=True)
        with pytest.raises(BudgetExhausted):
            await store.instances.update(Change(longer, audit_record=deed(), judged_by=only_strict))
        shorter = replace(running, lease_term=term_of(3600, store.clock.now(), timedelta(0)))
        await store.instances.update(Change(shorter, audit_record=deed(), judged_by=only_strict))

    async def test_a_longer_lease_asks_nothing_of_others(self, store: Store) -> None:
        await store.budgets.add(a_budget(amount=0), deed())
        assert not await refused(store, wanting(rules=replace(RULES, only_strict=True)))

    async def test_what_has_no_end_counts_in_a_strict_one_until_the_period_ends(self, store: Store) -> None:
        await store.instances.add(replace(wanting(1), judged_by=None))
        # 24 hours at $0.40, and one hour more.
        await store.budgets.add(a_budget(amount=10 * USD - 1, strict=True), deed())
        assert await refused(store, wanting(2, terms=Terms(Lease(seconds=3600))))
        await store.budgets.save(replace(a_budget(strict=True), amount=10 * USD))
        assert not await refused(store, wanting(2, terms=Terms(Lease(seconds=3600))))

    async def test_a_start_does_not_count_itself_twice(self, store: Store) -> None:
        await store.budgets.add(a_budget(amount=USD // 10), deed())
        it = await store.instances.add(wanting(1))
        change = Change(replace(it, status=Status.STARTING), audit_record=deed(), judged_by=RULES)
        assert (await store.instances.update(change)).status is Status.STARTING

    async def test_the_gpus_of_one_that_is_started_count_though_its_disk_is_billed(
        self, store: Store
    ) -> None:
        await store.budgets.add(a_budget(amount=USD // 5), deed())
        it = rented(1, Decimal("0.36"), status=Status.EXITED, disk_hourly_usd=Decimal("0.04"))
        it = await store.instances.add(Change(it))
        disk = replace(a_span("machine-1", START, usd="0.04"), kind=CostKind.DISK)
        await store.write_spans([disk], {"machine-1": subject_of_instance(it)})
        it = await store.instances.get(it.id)
        started = replace(it, status=Status.STARTING)
        await store.instances.update(Change(started, audit_record=deed(), judged_by=RULES))
        assert not await refused(store, wanting(2))
        assert await refused(store, wanting(3))

    async def test_a_plan_hears_what_a_create_would(self, store: Store) -> None:
        await store.budgets.add(a_budget(amount=USD // 10), deed())
        demand = Demand("ada", {}, nano_usd(PRICE), None)
        await store.budgets.judge(demand, RULES, START)
        await store.instances.add(wanting(1))
        with pytest.raises(BudgetExhausted):
            await store.budgets.judge(demand, RULES, START)


class TestEnding:
    async def test_what_costs_money_in_the_scope_has_to_be_ended(self, store: Store) -> None:
        disk = {"status": Status.EXITED, "goal": Goal.STOPPED, "disk_hourly_usd": Decimal("0.01")}
        its = {
            1: a_running_instance(1, owner="ada"),
            2: an_instance(2, owner="ada", labels={"team": "red"}),
            3: a_running_instance(3, owner="ada", goal=Goal.STOPPED, status=Status.STOPPING),
            4: a_running_instance(4, owner="ada", goal=Goal.STOPPED, status=Status.EXITED),
            5: a_running_instance(5, owner="ada", **disk),
            6: a_running_instance(6, owner="ada", goal=Goal.DELETED, status=Status.DELETING),
            7: a_running_instance(7, owner="bob"),
        }
        for it in its.values():
            await store.instances.add(Change(it))

        async def found(**changes: Any) -> list[str]:
            return sorted(it.id for it in await store.budgets.to_end(a_budget(**changes), 100))

        def ids(*numbers: int) -> list[str]:
            return [instance_id(n) for n in numbers]

        assert await found(at_limit=AtLimit.STOP) == ids(1, 2, 7)
        assert await found(at_limit=AtLimit.STOP, scope=ADAS) == ids(1, 2)
        assert await found(at_limit=AtLimit.STOP, scope=RED) == ids(2)
        assert await found(at_limit=AtLimit.DELETE, scope=ADAS) == ids(1, 2, 3, 5)
        assert await found(at_limit=AtLimit.BLOCK) == []
        assert len(await store.budgets.to_end(a_budget(at_limit=AtLimit.STOP), 2)) == 2

    async def test_what_has_vanished_does_not_take_the_place_of_what_runs(self, store: Store) -> None:
        lost = {"status": Status.FAILED, "last_error": Failure(VANISHED, "it is gone", START)}
        for n in range(1, 5):
            await store.instances.add(Change(a_running_instance(n, **lost)))
        kept = {"status": Status.FAILED, "last_error": Failure("STARTUP_FAILED", "it did not start", START)}
        given_back = {**kept, "releasing": True}
        await store.instances.add(Change(a_running_instance(5, **given_back)))
        await store.instances.add(Change(a_running_instance(6, **kept)))
        await store.instances.add(Change(a_running_instance(7)))
        for at_limit in (AtLimit.STOP, AtLimit.DELETE):
            found = await store.budgets.to_end(a_budget(at_limit=at_limit), 2)
            assert {it.id for it in found} == {instance_id(6), instance_id(7)}
