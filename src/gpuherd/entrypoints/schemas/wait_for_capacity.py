"""How long a create or a start may wait for capacity."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt

from gpuherd.contract.body_models import RequestModel

# A week.
CAPACITY_WAIT_MAX_S = 604_800


class WaitForCapacity(RequestModel):
    """How long to wait for an offer that fits, if there is none now."""

    seconds: Annotated[StrictInt, Field(ge=1, le=CAPACITY_WAIT_MAX_S)]
