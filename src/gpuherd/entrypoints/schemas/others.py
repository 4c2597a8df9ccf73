"""Bodies about volumes and registry credentials, and those that say little."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, StrictInt, StrictStr

from gpuherd.contract.body_models import (
    Code,
    RequestModel,
    ShortText,
    Words,
    has_control_characters,
    readable,
)
from gpuherd.domain.cloud.network_volume import VOLUME_GB_MAX, VOLUME_GB_MIN
from gpuherd.domain.cloud.template import CredentialOrder
from gpuherd.domain.secret import Secret
from gpuherd.usecases.cloud.manage_volumes import VolumeRequest


class EmptyBody(RequestModel):
    """No fields: a client that sends some expects something that would not happen."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"


class ClearCacheBody(RequestModel):
    """Which cache to forget; without a name, all."""

    unknown_field: ClassVar[str] = "there is only the field {known}"

    cache_name: Annotated[StrictStr | None, Code("INVALID_CACHE_NAME"), Words("must be a string")] = None


class VolumeBody(RequestModel):
    """A network volume to make."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"

    name: Annotated[ShortText, Code("INVALID_NAME"), Words("must be a text of 1 to 200 characters")]
    region: Annotated[
        ShortText, Code("INVALID_REGION"), Words("must be a region, like one of GET /api/regions")
    ]
    size_gb: Annotated[
        Annotated[StrictInt, Field(ge=VOLUME_GB_MIN, le=VOLUME_GB_MAX)],
        Code("INVALID_SIZE_GB"),
        Words(f"must be a whole number of GB from {VOLUME_GB_MIN} to {VOLUME_GB_MAX}"),
    ]

    def to_request(self) -> VolumeRequest:
        """Return what is asked for."""
        return VolumeRequest(self.name, self.region, self.size_gb)


def _password(value: str) -> str:
    if has_control_characters(value):
        raise ValueError("must not contain control characters")
    return value


class RegistryAuthBody(RequestModel):
    """A login to a registry, for the cloud to keep."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"

    name: Annotated[ShortText, Code("INVALID_NAME"), Words("must be a text of 1 to 200 characters")]
    username: Annotated[
        Annotated[StrictStr, Field(min_length=1, max_length=511), AfterValidator(readable)],
        Code("INVALID_USERNAME"),
        Words("must be a text of 1 to 511 characters"),
    ]
    password: Annotated[
        Annotated[StrictStr, Field(min_length=1, max_length=1024, repr=False), AfterValidator(_password)],
        Code("INVALID_PASSWORD"),
        Words("must be a text of 1 to 1024 characters"),
    ]

    def to_order(self) -> CredentialOrder:
        """Return what is asked for."""
        return CredentialOrder(self.name, self.username, Secret(self.password))
