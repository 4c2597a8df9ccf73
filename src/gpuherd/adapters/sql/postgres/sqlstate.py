"""PostgreSQL's codes of errors."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError


def sqlstate_of(error: DBAPIError) -> str | None:
    """Return PostgreSQL's code for what went wrong, None if it did not come to say one."""
    code: str | None = getattr(error.orig, "sqlstate", None)
    return code
