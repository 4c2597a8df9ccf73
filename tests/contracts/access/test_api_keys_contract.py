"""What the ports of keys, audit log, claims and retention promise, on SQLite and on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql import rental_tables, service_tables
from gpuherd.domain.api_key import ApiKey, Caller, Limits, Scope
from gpuherd.domain.audit import AuditRecord, first_broken_entry
from gpuherd.domain.errors import (
    Conflict,
    IdempotencyKeyReused,
    NotFound,
    QuotaExceeded,
    StaleWrite,
    StoreUnavailable,
)
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.operation import OperationKind, requested
from gpuherd.domain.instance.quota import usage_of
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.webhooks.webhook_signing import KeyWebhookSecret
from gpuherd.ports.access_port import IdempotencyClaim, StoredReply
from gpuherd.ports.instance_port import Change, InstanceQuery
from gpuherd.ports.job_port import JobQuery
from tests.support.builders import (
    a_reconcile_job,
    a_running_instance,
    an_attempt,
    an_event,
    an_instance,
    instance_id,
)
from tests.support.fake_clock import START, FakeClock
from tests.support.sql.databases import Store, all_at_once

MINUTE = timedelta(minutes=1)
WEEK = timedelta(days=7)
ADA = Caller("adaadaad", Scope.WRITE)
CLAIM = IdempotencyClaim("adaadaad", "run-7", "fingerprint-1")


@pytest.fixture
def on_sql(database_url: str) -> None:
    if database_url == "memory:":
        pytest.skip("these ports are kept by SQL alone")


def a_deed(n: int = 1, at: datetime = START) -> AuditRecord:
    return ADA.audit_record("instance.create", instance_id(n), at, "", f"after {n}")


def a_key(key_id: str = "adaadaad", **more: Any) -> ApiKey:
    base = ApiKey(key_id, "ab" * 32, "ci", (Scope.READ, Scope.WRITE), START)
    return replace(base, **more)


def one_of(owner: str, n: int, **wish: Any) -> Instance:
    it = an_instance(n)
    return replace(it, owner=owner, wish=replace(it.wish, **wish), status=Status.CREATING)


async def chain(store: Store) -> list[str]:
    """Return the actions in the log, after a look at every seal."""
    page = await store.audit.page(1000, oldest_first=True)
    assert first_broken_entry(page.entries) is None
    return [it.audit_record.after for it in page.entries]


@pytest.mark.usefixtures("on_sql")
class TestKeys:
    async def test_a_key_comes_back_as_it_was(self, store: Store) -> None:
        limits = Limits(60, 8, Decimal("3.50"))
        key = a_key(limits=limits, expires_at=START + WEEK)
        await store.keys.add(key, a_deed())
        await store.keys.add(a_key("bobbobbo", created_at=START + MINUTE), a_deed(2))
        assert await store.keys.get(key.id) == key
        assert [it.id for it in await store.keys.list_all()] == [key.id, "bobbobbo"]
        assert len(await chain(store)) == 2

    async def test_a_webhook_secret_is_set_over_the_one_it_was_made_from_and_no_other(
        self, store: Store
    ) -> None:
        first = KeyWebhookSecret("nonce", "beef")
        key = a_key(webhook_secret=first)
        await store.keys.add(key, a_deed())
        await store.keys.add(a_key("bobbobbo"), a_deed(2))
        second = first.rotated("cafe", "another", START)
        await store.keys.set_webhook_secret(key, second, a_deed(3))
        with pytest.raises(StaleWrite):
            await store.keys.set_webhook_secret(key, first.rotated("dead", "late", START), a_deed(4))
        assert await store.keys.get(key.id) == replace(key, webhook_secret=second)
        assert (await store.keys.get("bobbobbo")).webhook_secret is None
        assert await chain(store) == ["after 1", "after 2", "after 3"]

    async def test_an_id_that_is_taken_is_refused_and_not_in_the_log(self, store: Store) -> None:
        await store.keys.add(a_key(), a_deed())
        with pytest.raises(Conflict):
            await store.keys.add(a_key(label="other"), a_deed(2))
        assert (await store.keys.get("adaadaad")).label == "ci"
        assert await chain(store) == ["after 1"]

    async def test_a_key_is_revoked_once(self, store: Store) -> None:
        await store.keys.add(a_key(), a_deed())
        revoked = await store.keys.revoke("adaadaad", a_deed(2, START + MINUTE))
        assert revoked.revoked_at == START + MINUTE
        again = await store.keys.revoke("adaadaad", a_deed(3, START + WEEK))
        assert again == revoked == await store.keys.get("adaadaad")
        assert await chain(store) == ["after 1", "after 2"]

    async def test_an_unknown_key_is_not_found_and_leaves_no_trace(self, store: Store) -> None:
        for call in (store.keys.get("nobody"), store.keys.revoke("nobody", a_deed())):
            with pytest.raises(NotFound) as refused:
                await call
            assert refused.value.code == "KEY_NOT_FOUND"
        assert await chain(store) == []

    async def test_the_latest_use_counts(self, store: Store) -> None:
        await store.keys.add(a_key(), a_deed())
        for at in (MINUTE, 3 * MINUTE, 2 * MINUTE):
            await store.keys.record_use({"adaadaad": START + at, "nobody": START})
        assert (await store.keys.get("adaadaad")).last_used_at == START + 3 * MINUTE


@pytest.mark.usefixtures("on_sql")
class TestAudit:
    async def test_a_deed_is_in_the_log_if_and_only_if_it_was_done(self, store: Store) -> None:
        await store.instances.add(Change(an_instance(1), audit_record=a_deed(1)))
        broken = Change(an_instance(2), events=(an_event(2), an_event(2)), audit_record=a_deed(2))
        with pytest.raises(sa.exc.IntegrityError):
            await store.instances.add(broken)
        moved = replace(await store.instances.get(instance_id(1)), status=Status.DELETING)
        await store.instances.update(Change(moved, audit_record=a_deed(3)))
        await store.flags.put("creates_blocked", None, a_deed(4))
        assert await chain(store) == ["after 1", "after 3", "after 4"]

    async def test_what_goes_on_by_itself_is_not_in_it(self, store: Store) -> None:
        await store.instances.add(Change(an_instance(1)))
        assert await chain(store) == []

    async def test_a_claim_that_is_taken_is_no_deed(self, store: Store) -> None:
        for n in (1, 2):
            await store.instances.add(Change(an_instance(n), audit_record=a_deed(n)), CLAIM)
        assert await chain(store) == ["after 1"]

    async def test_two_processes_make_one_chain(self, store: Store, other_store: Store) -> None:
        both = (store, other_store)

        async def act(n: int) -> Any:
            mine = both[n % 2]
            if n % 3 == 0:
                return await mine.audit.append(a_deed(n))
            # Some of them fail, and take their entry along.
            events = (an_event(n), an_event(n)) if n % 5 == 0 else (an_event(n),)
            return await mine.instances.add(Change(an_instance(n), events=events, audit_record=a_deed(n)))

        answers = await all_at_once(60, act)
        failed = [n for n in range(60) if n % 3 and n % 5 == 0]
        assert [n for n, it in enumerate(answers) if isinstance(it, BaseException)] == failed
        expected = {f"after {n}" for n in range(60) if n not in failed}
        found = await chain(store)
        assert (len(found), set(found)) == (len(expected), expected)

    @pytest.mark.parametrize(
        "statement", [sa.delete(service_tables.audit), sa.update(service_tables.audit).values(actor="x")]
    )
    async def test_the_database_itself_refuses_to_change_the_log(self, store: Store, statement: Any) -> None:
        await store.audit.append(a_deed())
        with pytest.raises((StoreUnavailable, sa.exc.DBAPIError)):
            await store.run(statement)
        assert await chain(store) == ["after 1"]


@pytest.mark.usefixtures("on_sql")
class TestClaims:
    REPLY = StoredReply(202, {"location": "/x"}, '{"a":"é"}')

    async def test_a_reply_is_given_again(self, store: Store) -> None:
        assert await store.claims.begin(CLAIM) is None
        await store.claims.finish(CLAIM, self.REPLY)
        assert await store.claims.begin(CLAIM) == self.REPLY
        with pytest.raises(IdempotencyKeyReused):
            await store.claims.begin(replace(CLAIM, fingerprint="other"))
        assert await store.claims.begin(replace(CLAIM, scope="bobbobbo")) is None

    async def test_a_claim_under_way_is_in_use_until_it_is_abandoned(
        self, store: Store, store_clock: FakeClock
    ) -> None:
        await store.claims.begin(CLAIM)
        with pytest.raises(Conflict):
            await store.claims.begin(CLAIM)
        await store_clock.advance(121)
        assert await store.claims.begin(CLAIM) is None
        with pytest.raises(Conflict):
            await store.claims.begin(CLAIM)

    async def test_a_released_claim_is_free_but_an_answered_one_stays(self, store: Store) -> None:
        await store.claims.begin(CLAIM)
        await store.claims.release(CLAIM)
        assert await store.claims.begin(CLAIM) is None
        await store.claims.finish(CLAIM, self.REPLY)
        await store.claims.release(CLAIM)
        assert await store.claims.begin(CLAIM) == self.REPLY

    async def test_of_many_at_once_in_two_processes_one_gets_it(
        self, store: Store, other_store: Store
    ) -> None:
        both = (store, other_store)
        answers = await all_at_once(20, lambda n: both[n % 2].claims.begin(CLAIM))
        assert sum(it is None for it in answers) == 1
        assert sum(isinstance(it, Conflict) for it in answers) == 19

    async def test_a_word_that_an_instance_has_is_not_free(self, store: Store) -> None:
        await store.instances.add(Change(an_instance(1)), CLAIM)
        with pytest.raises(IdempotencyKeyReused):
            await store.claims.begin(replace(CLAIM, fingerprint="of a stop"))
        await store.claims.begin(replace(CLAIM, key="other"))
        with pytest.raises(IdempotencyKeyReused):
            await store.instances.add(Change(an_instance(2)), replace(CLAIM, key="other", fingerprint="x"))


class TestOperationClaims:
    async def test_a_claim_stands_for_the_operation_and_not_for_a_later_one(self, store: Store) -> None:
        it = await store.instances.add(Change(an_instance(1)))
        stop = requested("op_1", OperationKind.STOP, START)
        start = requested("op_2", OperationKind.START, START)
        it = await store.instances.update(Change(replace(it, operation=stop), operations=(stop,)), CLAIM)
        it = await store.instances.update(Change(replace(it, operation=start), operations=(start,)))
        assert await store.instances.claimed_operation(CLAIM) == (it, stop)
        with pytest.raises(IdempotencyKeyReused):
            await store.instances.claimed_operation(replace(CLAIM, fingerprint="other"))
        assert await store.instances.claimed_operation(replace(CLAIM, key="other")) is None
        other = replace(CLAIM, key="other")
        await store.instances.claim_operation(other, it)
        await store.instances.claim_operation(other, it)
        assert await store.instances.claimed_operation(other) == (it, start)

    async def test_a_taken_claim_lets_nothing_be_written(self, store: Store) -> None:
        it = await store.instances.add(Change(an_instance(1)))
        stop = requested("op_1", OperationKind.STOP, START)
        it = await store.instances.update(Change(replace(it, operation=stop), operations=(stop,)), CLAIM)
        before = await store.everything()
        with pytest.raises(Exception, match="same request"):
            await store.instances.update(Change(replace(it, status=Status.DELETING)), CLAIM)
        assert await store.everything() == before


class TestOwners:
    async def test_everything_can_be_asked_for_one_owner(self, store: Store) -> None:
        for n, owner in enumerate(("ada", "bob", "ada"), 1):
            change = Change(replace(one_of(owner, n), name="job"), jobs=(a_reconcile_job(n),))
            await store.instances.add(change)
        assert {it.owner for it in await store.instances.find_named("job", "ada")} == {"ada"}
        assert len(await store.instances.find_named("job", "ada")) == 2
        assert [it.instance.owner for it in await store.instances.all_live("bob")] == ["bob"]
        page = await store.instances.page(InstanceQuery(owner="ada", limit=1))
        assert (page.total, len(page.instances)) == (2, 1)
        rest = await store.instances.page(InstanceQuery(owner="ada", limit=1, cursor=page.next_cursor))
        assert [it.id for it in rest.instances] == [instance_id(1)]
        assert (await store.jobs.page(JobQuery(owner="bob"))).total == 1
        assert (await store.jobs.page(JobQuery(owner="nobody"))).total == 0
        assert sum((await store.jobs.stats("ada")).by_status.values()) == 2
        assert sum((await store.jobs.stats()).by_status.values()) == 3


class TestQuota:
    LIMITS = Limits(max_gpus=10)

    def wanting(self, n: int, owner: str = "ada", **wish: Any) -> Change:
        return Change(one_of(owner, n, **wish), audit_record=a_deed(n), limits=self.LIMITS)

    async def test_fifty_at_once_in_two_processes_are_ten(self, store: Store, other_store: Store) -> None:
        both = (store, other_store)
        answers = await all_at_once(50, lambda n: both[n % 2].instances.add(self.wanting(n + 1)))
        assert sum(isinstance(it, Instance) for it in answers) == 10
        assert sum(isinstance(it, QuotaExceeded) for it in answers) == 40
        assert len(await store.rows(rental_tables.instance)) == 10

    async def test_other_owners_and_what_has_ended_do_not_count(self, store: Store) -> None:
        await store.instances.add(self.wanting(1, "bob", gpu_num=8))
        it = await store.instances.add(self.wanting(2, gpu_num=8))
        with pytest.raises(QuotaExceeded) as refused:
            await store.instances.add(self.wanting(3, gpu_num=3))
        assert refused.value.details["gpus"] == {"used": 8, "requested": 3, "allowed": 10}
        for status, holds in ((Status.STOPPING, True), (Status.EXITED, False), (Status.DELETED, False)):
            it = await store.instances.update(Change(replace(it, status=status)))
            try:
                await store.instances.add(self.wanting(10 + len(status), gpu_num=3))
            except QuotaExceeded:
                assert holds
            else:
                assert not holds

    async def test_dollars_are_summed_exactly(self, store: Store) -> None:
        limits = Limits(max_hourly_usd=Decimal("0.3"))

        def change(n: int) -> Change:
            it = replace(one_of("ada", n), expected_hourly_usd=Decimal("0.1"), rental=None)
            it = replace(it, wish=replace(it.wish, hourly_usd_max=None))
            return Change(it, audit_record=a_deed(n), limits=limits)

        for n in (1, 2, 3):
            await store.instances.add(change(n))
        with pytest.raises(QuotaExceeded):
            await store.instances.add(change(4))

    async def test_what_is_stopped_counts_with_its_disk_and_not_against_its_own_start(
        self, store: Store
    ) -> None:
        limits = Limits(max_hourly_usd=Decimal("0.4"))
        it = replace(one_of("ada", 1), rental=a_running_instance().rental, disk_hourly_usd=Decimal("0.05"))
        it = await store.instances.add(Change(it, audit_record=a_deed(1)))
        it = await store.instances.update(Change(replace(it, status=Status.EXITED)))
        other = replace(one_of("ada", 2), expected_hourly_usd=Decimal("0.36"))
        with pytest.raises(QuotaExceeded) as refused:
            await store.instances.add(Change(other, audit_record=a_deed(2), limits=limits))
        assert refused.value.details["hourlyUsd"]["used"] == "0.05"
        it = await store.instances.update(
            Change(replace(it, status=Status.STARTING), audit_record=a_deed(3), limits=limits)
        )
        assert usage_of(it).hourly_usd == Decimal("0.40")

    async def test_a_start_does_not_count_itself_twice(self, store: Store) -> None:
        it = await store.instances.add(self.wanting(1, gpu_num=8))
        it = await store.instances.update(Change(replace(it, status=Status.STARTING), limits=self.LIMITS))
        assert it.status is Status.STARTING


@pytest.mark.usefixtures("on_sql")
class TestRetention:
    async def old(self, store: Store, n: int, *, deleted_at: datetime, **more: Any) -> Instance:
        it = replace(an_instance(n), status=Status.DELETED, settled=True, labels={"a": "b"}, **more)
        operation = requested(f"op_{n}", OperationKind.DELETE, START)
        event = Event(it.id, 1, "instance.deleted", deleted_at)
        return await store.instances.add(Change(it, events=(event,), operations=(operation,)))

    async def test_a_week_after_its_end_an_instance_is_forgotten_with_all_it_had(self, store: Store) -> None:
        gone = await self.old(store, 1, deleted_at=START)
        await store.instances.update(Change(gone, attempt=an_attempt(1, state=AttemptState.BOUND)), CLAIM)
        await self.old(store, 2, deleted_at=START + MINUTE)
        await store.instances.add(Change(an_instance(3)))
        await store.audit.append(a_deed(1))
        assert await store.retention.prune_instances(START + MINUTE) == 1
        left = await store.everything()
        assert {row.id for row in await store.rows(rental_tables.instance)} == {
            instance_id(2),
            instance_id(3),
        }
        for table in ("event", "operation", "instance_label", "attempt", "claim"):
            assert instance_id(1) not in repr(left[table]), table
        assert await chain(store) == ["after 1"]

    async def test_what_is_not_at_rest_stays(self, store: Store) -> None:
        await self.old(store, 1, deleted_at=START)
        await store.run(sa.update(rental_tables.instance).values(settled=False))
        assert await store.retention.prune_instances(START + WEEK) == 0

    async def test_what_may_still_have_a_machine_stays(self, store: Store) -> None:
        it = await self.old(store, 1, deleted_at=START)
        await store.instances.update(Change(it, attempt=an_attempt(1, state=AttemptState.UNKNOWN)))
        assert await store.retention.prune_instances(START + WEEK) == 0

    async def failed(self, store: Store, n: int, **more: Any) -> Instance:
        it = replace(an_instance(n), status=Status.FAILED, settled=True, **more)
        event = Event(it.id, 1, "instance.failed", START)
        return await store.instances.add(Change(it, events=(event,)))

    async def test_what_failed_is_forgotten_in_its_own_time(self, store: Store) -> None:
        await self.failed(store, 1)
        await self.failed(store, 2, cloud_id="m-2")
        await self.old(store, 3, deleted_at=START)
        assert await store.retention.prune_failed_instances(START) == 0
        assert await store.retention.prune_failed_instances(START + MINUTE) == 2
        assert {row.id for row in await store.rows(rental_tables.instance)} == {instance_id(3)}

    @pytest.mark.parametrize(
        "evidence", ["attempt", "its machine", "a machine with its tag", "orphan", "unsettled"]
    )
    async def test_what_failed_and_may_still_cost_money_stays(self, store: Store, evidence: str) -> None:
        it = await self.failed(store, 1, cloud_id="m-1")
        seen = {"first_seen_at": START, "changed_at": START, "missing_lists": 0, "doc": "{}"}
        line = {
            "verdict": "surplus",
            "first_seen_at": START,
            "judged_at": START,
            "ordered_by": "",
            "version": 1,
        }
        match evidence:
            case "attempt":
                await store.instances.update(Change(it, attempt=an_attempt(1, state=AttemptState.UNKNOWN)))
            case "its machine":
                await store.run(sa.insert(rental_tables.sighting).values(cloud_id="m-1", **seen))
            case "a machine with its tag":
                values = {"cloud_id": "m-9", "tag": "t", "tagged_instance_id": it.id, **seen}
                await store.run(sa.insert(rental_tables.sighting).values(**values))
            case "orphan":
                await store.run(sa.insert(rental_tables.orphan).values(cloud_id="m-1", doc="{}", **line))
            case "unsettled":
                await store.run(sa.update(rental_tables.instance).values(settled=False))
        assert await store.retention.prune_failed_instances(START + WEEK) == 0

    async def test_hundreds_are_forgotten_in_parts(self, store: Store) -> None:
        for n in range(1, 251):
            await self.old(store, n, deleted_at=START)
        assert await store.retention.prune_instances(START + MINUTE) == 250

    async def test_claims_are_kept_a_while(self, store: Store, store_clock: FakeClock) -> None:
        await store.instances.add(Change(an_instance(1)), CLAIM)
        await store.claims.begin(replace(CLAIM, key="two"))
        await store_clock.advance(60)
        await store.claims.begin(replace(CLAIM, key="three"))
        assert await store.retention.prune_claims(START + MINUTE) == 2
        assert [row.key for row in await store.rows(rental_tables.claim)] == ["three"]
        assert await store.instances.claimed(CLAIM) is None
