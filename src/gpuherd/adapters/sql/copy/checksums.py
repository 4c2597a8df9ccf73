"""Sums of whole tables, by which two databases are compared.

Each row becomes a number of 64 bits and the numbers are added up, so the order does not matter. Python makes
them from the values alone, the same way for every database.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

import sqlalchemy as sa

from gpuherd.adapters.sql.copy.plan import copied_columns
from gpuherd.domain.errors import GpuherdError

ROWS_AT_ONCE = 1000
# What people want to see with their own eyes.
TOTALS: Mapping[str, tuple[str, ...]] = {"instance": ("gpus", "micro_usd")}
_LIMIT = 2**64


class CopyMismatch(GpuherdError):
    """The copy is not what it was copied from."""

    code = "COPY_DIFFERS"


@dataclass(frozen=True)
class TableChecksum:
    """What a table holds, in a few numbers."""

    rows: int
    digest: int
    totals: Mapping[str, int] = field(default_factory=dict)


def checksum_table(connection: sa.Connection, table: sa.Table) -> TableChecksum:
    """Read a table through."""
    rows = digest = 0
    totals = dict.fromkeys(TOTALS.get(table.name, ()), 0)
    query = sa.select(*copied_columns(table)).execution_options(yield_per=ROWS_AT_ONCE)
    for row in connection.execute(query):
        rows += 1
        # `repr` tells text from bytes, 1 from True and nothing from the empty text.
        seen = blake2b(repr(tuple(row)).encode(), digest_size=8).digest()
        digest = (digest + int.from_bytes(seen)) % _LIMIT
        for name in totals:
            totals[name] += getattr(row, name)
    return TableChecksum(rows, digest, totals)


def check_equal(table: str, source: TableChecksum, target: TableChecksum) -> None:
    """Raise `CopyMismatch` unless both are the same."""
    if source == target:
        return
    if source.rows != target.rows:
        how = f"{source.rows} rows in the source, {target.rows} in the copy"
    else:
        how = f"{source.rows} rows in both, but not with the same values"
    raise CopyMismatch(f"the copy of the table {table} is not like the original: {how}")
