"""Bodies that hardly say anything."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import StrictStr

from gpuherd.entrypoints.schemas.request_model import Code, RequestModel, Words


class EmptyBody(RequestModel):
    """No fields: a client that sends some expects something that would not happen."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"


class ClearCacheBody(RequestModel):
    """Which cache to forget; without a name, all."""

    unknown_field: ClassVar[str] = "there is only the field {known}"

    cache_name: Annotated[StrictStr | None, Code("INVALID_CACHE_NAME"), Words("must be a string")] = None
