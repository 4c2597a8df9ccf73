"""Faults as JSON, for the control endpoint and for a world that is kept across restarts."""

from __future__ import annotations

from gpuherd.simulator.calls import ApiEndpoint
from gpuherd.simulator.faults.fault import FAULT_KIND_SPECS, Fault, FaultKind
from gpuherd.simulator.fields import Fields

_DAY_S = 86_400.0
_FOREVER_S = 1000 * _DAY_S

JSON_NAMES = {
    "kind": "kind",
    "count": "count",
    "probability": "probability",
    "after_s": "afterSeconds",
    "for_s": "forSeconds",
    "endpoints": "endpoints",
    "cluster": "cluster",
    "product": "product",
    "name_contains": "nameContains",
    "status": "status",
    "reason": "reason",
    "message": "message",
    "seconds": "seconds",
    "notice_s": "noticeSeconds",
    "factor": "factor",
    "style": "style",
    "retry_after": "retryAfter",
}


def fault_to_json(fault: Fault) -> dict[str, object]:
    """Return what differs from a plain fault of its kind."""
    plain = Fault(fault.kind)
    values = {name: getattr(fault, name) for name in JSON_NAMES}
    changed = {name: value for name, value in values.items() if value != getattr(plain, name)}
    changed["kind"] = fault.kind.value
    if fault.endpoints:
        changed["endpoints"] = [endpoint.value for endpoint in fault.endpoints]
    return {JSON_NAMES[name]: value for name, value in changed.items()}


def fault_from_json(fields: Fields) -> Fault:
    """Read one fault; a misspelt name would be a fault that never strikes, so unknown names are refused."""
    if unknown := sorted(fields.names() - set(JSON_NAMES.values())):
        raise ValueError(f"a fault has no {', '.join(map(repr, unknown))}")
    probability = fields.number("probability", low=0, high=1)
    return Fault(
        kind=FaultKind(fields.one_of("kind", list(FaultKind), "")),
        count=fields.whole("count", low=1, high=1_000_000) if fields.has("count") else None,
        probability=1.0 if probability is None else probability,
        after_s=fields.number("afterSeconds", low=0, high=_FOREVER_S) or 0.0,
        for_s=fields.number("forSeconds", low=0, high=_FOREVER_S),
        endpoints=tuple(_read_endpoint(name) for name in fields.texts("endpoints", most=len(ApiEndpoint))),
        cluster=fields.text("cluster"),
        product=fields.text("product"),
        name_contains=fields.text("nameContains"),
        status=fields.whole("status", low=400, high=599) if fields.has("status") else None,
        reason=fields.text("reason"),
        message=fields.text("message", longest=2000),
        seconds=fields.number("seconds", low=0, high=_FOREVER_S),
        notice_s=fields.number("noticeSeconds", low=0, high=_FOREVER_S),
        factor=fields.number("factor", low=0, high=1_000_000),
        style=fields.text("style"),
        retry_after=fields.text("retryAfter"),
    )


def kinds_to_json() -> dict[str, object]:
    """Return every kind with its meaning, so that a person finds them without the source."""
    return {
        kind.value: {
            "meaning": rules.meaning,
            "endpoints": [endpoint.value for endpoint in rules.endpoints] or "all",
            "styles": list(rules.styles),
        }
        for kind, rules in FAULT_KIND_SPECS.items()
    }


def _read_endpoint(name: str) -> ApiEndpoint:
    if name not in list(ApiEndpoint):
        raise ValueError(f"there is no endpoint {name!r}; there are {', '.join(ApiEndpoint)}")
    return ApiEndpoint(name)
