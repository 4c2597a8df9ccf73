"""The one error of a database that a person must look at."""

from __future__ import annotations

from gpuherd.domain.errors import GpuherdError


class DatabaseUnusable(GpuherdError):
    """The database cannot be used as it is; a person must decide."""

    code = "DATABASE_UNUSABLE"
