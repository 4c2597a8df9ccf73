"""Addresses, as the request bodies share them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, StrictStr, ValidationInfo

from gpuherd.contract.body_models import Code, Words
from gpuherd.domain.egress_policy import BlockedTarget, EgressPolicy, check_url


def _usable_url(value: str, info: ValidationInfo) -> str:
    assert isinstance(info.context, EgressPolicy)
    try:
        check_url(value, info.context)
    except BlockedTarget as blocked:
        raise ValueError(f"cannot be used: {blocked}") from None
    return value


# Needs the egress policy as the context.
WebhookUrl = Annotated[
    StrictStr, AfterValidator(_usable_url), Code("INVALID_WEBHOOK_URL"), Words("must be a string")
]
