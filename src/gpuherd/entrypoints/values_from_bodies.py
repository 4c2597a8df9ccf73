"""Makes the values of use cases of bodies that both the API and the dashboard take."""

from __future__ import annotations

from gpuherd.contract.access_models import KeyBody
from gpuherd.contract.body_models import CheckTarget
from gpuherd.domain.api_key import NO_LIMITS, Limits, Scope
from gpuherd.domain.egress_policy import BlockedTarget, EgressPolicy
from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.domain.secret import NAME, NAME_RULE
from gpuherd.domain.webhooks.webhook_endpoint import EndpointKind, check_target
from gpuherd.usecases.access.manage_keys import KeyRequest


def key_request_of(body: KeyBody) -> KeyRequest:
    """Return the key that the body asks for."""
    return KeyRequest(
        scopes=tuple(scope for scope in Scope if scope.value in body.scopes),
        label=body.label or "",
        expires_at=body.expires_at,
        limits=NO_LIMITS if body.limits is None else Limits(**body.limits.__dict__),
    )


def checked_secret_name(name: str) -> str:
    """Return the name of a secret, or raise `InvalidRequest`."""
    if not NAME.fullmatch(name):
        raise InvalidRequest([FieldProblem("name", "INVALID_SECRET_NAME", f"name {NAME_RULE}")])
    return name


def target_check(policy: EgressPolicy) -> CheckTarget:
    """Return the context for bodies with an address: addresses that the policy forbids are refused."""

    def check(kind: str, address: str) -> str:
        try:
            return check_target(EndpointKind(kind), address, policy)
        except BlockedTarget as blocked:
            raise ValueError(f"cannot be used: {blocked}") from None

    return check
