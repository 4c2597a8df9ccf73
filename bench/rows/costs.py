"""A month of money by label, out of a ledger of a million spans, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from typing import Any

import sqlalchemy as sa

from bench.environment import LIMITS_OFF, BenchEnvironment, ready
from bench.load import Orders, load
from bench.postgres import running_postgres, sqlalchemy_url
from bench.processes import AUTH, Server
from bench.report import Line
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.ledger_tables import cost_centre, ledger_day, ledger_label, ledger_subject, meter
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.sql.sql_types import insert_into
from gpuherd.adapters.stores.usage_span_writes import centre_row, span_row, subject_row
from gpuherd.domain.money.period import NO_SHARE, Share, day_start, days_of
from gpuherd.domain.money.usage_span import CostKind, CostSpan, CostSubject, Edge, PriceSource, Rate

MS_MAX = 200
DAYS = 400
TEAMS = 20
PRODUCTS = ("RTX 4090 24GB", "RTX 5090 32GB", "H100 SXM 80GB")
REGIONS = ("US-CA-06", "AS-SGP-02", "EU-GB-01")
SPANS_PER_SUBJECT = 4
# No list shall fall into the measurements, and no machine of the cloud into the ledger.
QUIET_SETTINGS = {**LIMITS_OFF, "INSTANCE_POLL_INTERVAL": "3600", "GPUHERD_RECONCILE": "off"}
QUESTIONS = {
    "by label": "groupBy=label:team",
    "by day": "groupBy=day",
    "by key": "groupBy=key",
    "by instance": "groupBy=instance",
}


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    spans, lines = bench_env.scale.spans, []
    async with running_postgres() as postgres, bench_env.cloud() as cloud:
        file = bench_env.place("costs") / "gpuherd.db"
        urls = {"SQLite": f"sqlite:///{file}", "PostgreSQL": postgres.new_database()}
        for database, url in urls.items():
            await _seed(_in_sqlalchemys_words(url), spans)
            async with bench_env.ours(cloud, {**QUIET_SETTINGS, "GPUHERD_DATABASE_URL": url}) as server:
                await ready(server)
                lines += [await _line(bench_env, server, database, it) for it in QUESTIONS]
    return lines


async def _line(bench_env: BenchEnvironment, server: Server, database: str, question: str) -> Line:
    now = datetime.now(UTC)
    begin, end = (now - timedelta(days=60)).date(), (now - timedelta(days=30)).date()
    path = f"/api/costs?from={begin}&to={end}&{QUESTIONS[question]}"
    orders = Orders(port=server.port, path=path, headers=AUTH, seconds=bench_env.scale.round_s)
    seen = await load(orders)
    promised = question == "by label"
    return Line(
        f"costs of a month {question}, {bench_env.scale.spans:,} spans on {database}, p50",
        f"{seen.p50_ms:.0f} ms",
        "",
        None,
        f"< {MS_MAX} ms" if promised else "",
        seen.p50_ms < MS_MAX if promised else None,
        f"one caller, {seen.count} requests, p99 {seen.p99_ms:.0f} ms; a month in the middle of {DAYS} days",
    )


def _in_sqlalchemys_words(url: str) -> str:
    return url if url.startswith("sqlite") else sqlalchemy_url(url)


async def _seed(url: str, count: int) -> None:
    """Write a ledger with so many spans that have ended, spread over its days."""
    database = Database(url)
    try:
        await asyncio.to_thread(migrate, database)
        await _write(database, count)
        if not database.is_sqlite:
            # As a server does by itself after a while.
            await database.write(lambda c: c.execute(sa.text("ANALYZE")).close())
    finally:
        database.close()


async def _write(database: Database, count: int) -> None:
    """Write the same day again and again, each with machines of its own."""
    subjects = list(_subjects())
    await database.write(lambda c: _write_centres(c, subjects))
    a_day = max(1, count // DAYS)
    rng = random.Random(5)
    spans = [_span(rng, n, a_day) for n in range(a_day)]
    for day in range(DAYS):
        await database.write(partial(_write_day, subjects, spans, day))


def _write_centres(connection: sa.Connection, subjects: Sequence[CostSubject]) -> None:
    for n, it in enumerate(subjects, 1):
        connection.execute(sa.insert(cost_centre), [{"id": n, **centre_row(it)}])
        labels = [{"centre_id": n, "key": key, "value": value} for key, value in it.labels.items()]
        connection.execute(sa.insert(ledger_label), labels)


def _write_day(
    subjects: Sequence[CostSubject], spans: Sequence[CostSpan], day: int, connection: sa.Connection
) -> None:
    later = timedelta(days=day)
    rows, owners = [], []
    sums: dict[tuple[date, int, str], Share] = defaultdict(lambda: NO_SHARE)
    for n, it in enumerate(spans):
        centre_id = n // SPANS_PER_SUBJECT % len(subjects) + 1
        subject = subjects[centre_id - 1]
        key = (day * len(spans) + n) // SPANS_PER_SUBJECT
        row = {name: value + later if name in _MOMENTS else value for name, value in _row_of(it).items()}
        more = {"cloud_id": f"m-{day}-{n}", "subject_id": key + 1, "centre_id": centre_id}
        rows.append({**row, **more, "instance_id": f"inst_{key:026d}"})
        for on, share in _days_of(it):
            sums[on + later, centre_id, it.kind.value] += share
        if (day * len(spans) + n) % SPANS_PER_SUBJECT == 0:
            owners.append(_subject_row(subject, key, centre_id, it, later))
    connection.execute(sa.insert(meter), rows)
    connection.execute(sa.insert(ledger_subject), owners)
    add = insert_into(connection, ledger_day)
    names = ("amount_nusd", "doubt_nusd", "after_end_nusd")
    sums_of = {name: ledger_day.c[name] + add.excluded[name] for name in names}
    connection.execute(
        add.on_conflict_do_update(index_elements=["day", "centre_id", "kind"], set_=sums_of),
        [
            {"day": on, "centre_id": centre_id, "kind": kind, **dict(zip(names, share, strict=True))}
            for (on, centre_id, kind), share in sums.items()
        ],
    )


_MOMENTS = frozenset({"began_lo", "began_hi", "ended_lo", "ended_hi"})
_NOBODY = CostSubject("m", "i", "key", datetime.now(UTC))


@cache
def _row_of(it: CostSpan) -> dict[str, Any]:
    return span_row(it, _NOBODY)


@cache
def _days_of(it: CostSpan) -> tuple[tuple[date, Share], ...]:
    return tuple(days_of(it))


def _subjects() -> Iterator[CostSubject]:
    for team in range(TEAMS):
        for product in PRODUCTS:
            for region in REGIONS:
                yield CostSubject(
                    "m",
                    "i",
                    f"key-{team % 7}",
                    datetime.now(UTC),
                    product_name=product,
                    region=region,
                    billing_mode="spot",
                    labels={"team": f"team-{team}", "stage": "dev" if team % 2 else "prod"},
                )


def _subject_row(
    it: CostSubject, key: int, centre_id: int, span: CostSpan, later: timedelta
) -> dict[str, Any]:
    assert span.ended is not None
    named = {"key": f"inst_{key:026d}", "instance_id": f"inst_{key:026d}", "name": f"job-{key}"}
    return {
        "id": key + 1,
        **subject_row(it, centre_id),
        **named,
        "usable_at": span.began.hi + later,
        "first_at": span.began.lo + later,
        "last_at": span.ended.hi + later,
    }


def _span(rng: random.Random, n: int, count: int) -> CostSpan:
    """Return the n-th of the first day: minutes to hours long, its edges known to seconds."""
    oldest = day_start(datetime.now(UTC)) - timedelta(days=DAYS)
    began = oldest + timedelta(days=n / count)
    ended = began + timedelta(seconds=rng.randint(300, 20_000))
    doubt = timedelta(seconds=rng.randint(1, 15))
    rate = Rate(rng.choice((175_000_000, 350_000_000, 1_450_000_000)), PriceSource.RENTAL)
    began_edge, ended_edge = Edge(began - doubt, began + doubt), Edge(ended - doubt, ended + doubt)
    kind = CostKind.DISK if n % 5 == 0 else CostKind.GPU
    return CostSpan(f"m-{n:08d}", kind, rate, began_edge, "pulling", ended_edge, "stopped")
