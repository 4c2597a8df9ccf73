"""What a request says about a spot machine that is taken back. The limits are the domain's."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt

from gpuherd.contract.body_models import Code, Words
from gpuherd.domain.instance.lineage import HANDOVER_S, REPLACEMENTS, OnReclaim

OnReclaimField = Annotated[OnReclaim, Code("INVALID_ON_RECLAIM")]
MaxReplacements = Annotated[
    Annotated[
        StrictInt,
        Field(ge=REPLACEMENTS[0], le=REPLACEMENTS[1]),
        Words(f"must be a whole number from {REPLACEMENTS[0]} to {REPLACEMENTS[1]}"),
    ]
    | None,
    Code("INVALID_MAX_REPLACEMENTS"),
]
Handover = Annotated[
    StrictInt,
    Field(alias="handoverSeconds", ge=HANDOVER_S[0], le=HANDOVER_S[1]),
    Words(f"must be a whole number of seconds from {HANDOVER_S[0]} to {HANDOVER_S[1]}"),
    Code("INVALID_HANDOVER"),
]
