"""Parses a body; one that is refused for its form is told what else is wrong with it, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from gpuherd.domain.access.caller import Caller
from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.entrypoints.plane import Plane
from gpuherd.entrypoints.schemas.endings import LeaseField
from gpuherd.entrypoints.schemas.request_model import RequestModel
from gpuherd.entrypoints.schemas.texts import ShortText
from gpuherd.usecases.instances.validation.judge_values import AskedValues

M = TypeVar("M", bound=RequestModel)


class _JudgedFields(RequestModel):
    """The fields whose values only the catalogue or the clock can judge, the same in all bodies."""

    region: ShortText | None = None
    regions: tuple[ShortText, ...] | None = None
    lease: LeaseField = None


JUDGED_FIELDS = frozenset(_JudgedFields.model_fields)


async def parsed(model: type[M], said: Mapping[str, Any], plane: Plane, caller: Caller) -> M:
    """Return what was asked for, or raise every problem that it has, also with what is well formed."""
    try:
        return model.parse(said, plane.targets)
    except InvalidRequest as refused:
        judged = await plane.judge_values(_well_formed(said, refused.problems), caller.limits)
        raise InvalidRequest([*refused.problems, *judged]) from None


def _well_formed(said: Mapping[str, Any], problems: Sequence[FieldProblem]) -> AskedValues:
    wrong = {it.field.partition(".")[0] for it in problems}
    fields = _JudgedFields.parse({name: said[name] for name in JUDGED_FIELDS & said.keys() - wrong})
    lease = None if fields.lease is None else fields.lease.to_domain()
    return AskedValues(fields.region, fields.regions, lease)
