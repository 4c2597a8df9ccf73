"""A health check as a request orders it. The limits are the domain's."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, StrictInt, StrictStr

from gpuherd.contract.body_models import Code, RequestModel, Words
from gpuherd.domain.instance import health
from gpuherd.domain.instance.health import HealthCheck

_DEFAULTS = HealthCheck()


def _between(limits: tuple[int, int]) -> Any:
    return Field(ge=limits[0], le=limits[1])


def _words(limits: tuple[int, int]) -> Words:
    return Words(f"must be a whole number from {limits[0]} to {limits[1]}")


Port = Annotated[StrictInt, _between(health.PORT), _words(health.PORT)]
UrlPath = Annotated[
    StrictStr,
    Field(max_length=health.PATH_MAX_CHARS, pattern="^/"),
    AfterValidator(health.check_path),
    Words(f"must begin with a slash and have at most {health.PATH_MAX_CHARS} characters"),
]
_Status = Annotated[StrictInt, _between(health.STATUS)]
_Statuses = Annotated[list[_Status], Field(min_length=1, max_length=health.STATUSES_MAX)]


class HealthCheckBody(RequestModel):
    """What to ask, what to expect, and how long to go on."""

    unknown_field: ClassVar[str] = "there is no field {path}"

    target_port: Port | None = _DEFAULTS.target_port
    path: UrlPath = _DEFAULTS.path
    timeout_ms: Annotated[StrictInt, _between(health.TIMEOUT_MS), _words(health.TIMEOUT_MS)] = (
        _DEFAULTS.timeout_ms
    )
    retry_attempts: Annotated[StrictInt, _between(health.RETRY_ATTEMPTS), _words(health.RETRY_ATTEMPTS)] = (
        _DEFAULTS.retry_attempts
    )
    retry_delay_ms: Annotated[StrictInt, _between(health.RETRY_DELAY_MS), _words(health.RETRY_DELAY_MS)] = (
        _DEFAULTS.retry_delay_ms
    )
    max_wait_ms: Annotated[
        StrictInt,
        Field(alias="maxWaitTimeMs"),
        _between(health.MAX_WAIT_MS),
        _words(health.MAX_WAIT_MS),
    ] = _DEFAULTS.max_wait_ms
    # None: any 2xx.
    expected_status: Annotated[
        _Status | _Statuses | None,
        Words(
            f"must be a status from {health.STATUS[0]} to {health.STATUS[1]}, "
            f"or a list of 1 to {health.STATUSES_MAX} of them"
        ),
    ] = None
    body_contains: Annotated[
        Annotated[
            StrictStr,
            Field(min_length=1, max_length=health.TEXT_MAX_CHARS),
            AfterValidator(health.check_text),
        ]
        | None,
        Words(f"must be a text of 1 to {health.TEXT_MAX_CHARS} characters"),
    ] = _DEFAULTS.body_contains

    def to_domain(self) -> HealthCheck:
        """Return the check."""
        said = dict(self.__dict__)
        if (statuses := self.expected_status) is not None:
            listed = [statuses] if isinstance(statuses, int) else statuses
            said["expected_status"] = tuple(sorted(set(listed)))
        return HealthCheck(**said)


# The field of a body that orders one.
HealthCheckField = Annotated[HealthCheckBody | None, Code("INVALID_HEALTH_CHECK"), Words("must be an object")]
