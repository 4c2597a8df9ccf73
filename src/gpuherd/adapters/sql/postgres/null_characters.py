"""PostgreSQL can neither keep nor look for a null character; users and clouds can send one.

So each is replaced on the way to the server by the character that stands for what cannot be shown. A
query for a name with a null character in it finds nothing, as on SQLite, and a cloud that says one in an
error message does not keep its own words from being written down.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from psycopg.abc import Buffer
from psycopg.types.string import StrDumperUnknown

NULL, REPLACEMENT = "\x00", "\ufffd"


class NullReplacingDumper(StrDumperUnknown):
    """How text goes to the server."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace(NULL, REPLACEMENT) if NULL in obj else obj)


def replace_nulls(engine: sa.Engine) -> None:
    """Have every connection of this engine do so."""
    sa.event.listen(engine, "connect", _register_dumper)


def _register_dumper(driver: Any, _record: Any) -> None:
    driver.adapters.register_dumper(str, NullReplacingDumper)
