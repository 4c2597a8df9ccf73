"""What a user asks for when renting."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictInt

from gpuherd.contract.body_models import Code, RequestModel, Words
from gpuherd.contract.wire_models import ReplyModel, one_of

BillingMode = Annotated[str, one_of("spot", "onDemand")]
# Of a wish; what is rented is one of the others.
BillingChoice = Annotated[str, one_of("spot", "onDemand", "auto")]
OnReclaim = Annotated[str, one_of("none", "replace")]
Optimize = Annotated[str, one_of("region", "price")]
OnFailure = Annotated[str, one_of("delete", "keep")]


class CapacityWait(ReplyModel):
    """How long to wait for an offer that fits, if there is none."""

    seconds: int


class MountedVolume(ReplyModel, needs=("id",)):
    """A network volume of the account, and where the machine has it."""

    id: str
    mount_path: str


# Bodies

# A week.
CAPACITY_WAIT_MAX_S = 604_800


class WaitForCapacity(RequestModel):
    """How long to wait for an offer that fits, if there is none now."""

    seconds: Annotated[StrictInt, Field(ge=1, le=CAPACITY_WAIT_MAX_S)]


OnReclaimField = Annotated[Literal["none", "replace"], Code("INVALID_ON_RECLAIM")]
MaxReplacements = Annotated[
    Annotated[StrictInt, Field(ge=1, le=1000), Words("must be a whole number from 1 to 1000")] | None,
    Code("INVALID_MAX_REPLACEMENTS"),
]
Handover = Annotated[
    StrictInt,
    Field(alias="handoverSeconds", ge=0, le=3600),
    Words("must be a whole number of seconds from 0 to 3600"),
    Code("INVALID_HANDOVER"),
]
