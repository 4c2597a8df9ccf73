"""What runs on an instance, as a request says it: image, command, ports and environment.

No problem repeats the name or the value of a variable before it is known to be a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, PlainValidator, StrictStr, WithJsonSchema

from gpuherd.contract.body_models import (
    NOT_BLANK,
    Code,
    NotNull,
    RequestModel,
    ShortText,
    Words,
    env_value_problem,
)
from gpuherd.domain.cloud.template import PRODUCTS_MAX
from gpuherd.domain.instance.launch_spec import (
    GIVEN_ENVS_MAX,
    IMAGE_CHARS_MAX,
    MAX_PORTS,
    MOUNTS_MAX,
    PATH_CHARS_MAX,
    GivenEnv,
    VolumeMount,
    image_problem,
    mounts_problem,
    name_problem,
    parse_ports,
    path_problem,
)
from gpuherd.domain.secret import NAME, Secret
from gpuherd.usecases.cloud.prewarm_images import PrewarmSpec

COMMAND_CHARS_MAX = 2047
ENVS_SCHEMA = {
    "type": "object",
    "maxProperties": GIVEN_ENVS_MAX,
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_.-]*$", "maxLength": 511},
    "additionalProperties": {
        "anyOf": [
            {"type": "string", "maxLength": 4095},
            {
                "type": "object",
                "properties": {"secret": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"}},
                "required": ["secret"],
                "additionalProperties": False,
            },
        ]
    },
}

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def _image(value: str) -> str:
    if problem := image_problem(value):
        raise ValueError(problem)
    return value


def _command(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    if _UNPRINTABLE.search(value):
        raise ValueError("must not contain control characters")
    return value


def _ports(value: tuple[str, ...]) -> tuple[str, ...]:
    parse_ports(value)
    return value


def _envs(value: Any) -> tuple[GivenEnv, ...]:
    if not isinstance(value, dict):
        raise ValueError("must be an object of names and texts")  # noqa: TRY004  pydantic reports ValueError only
    if len(value) > GIVEN_ENVS_MAX:
        raise ValueError(f"must not be more than {GIVEN_ENVS_MAX} variables")
    if problems := list(_env_problems(value)):
        raise ValueError("; ".join(problems))
    return tuple(
        GivenEnv(name, Secret(it)) if isinstance(it, str) else GivenEnv(name, secret=it["secret"])
        for name, it in value.items()
    )


def _env_problems(envs: dict[str, Any]) -> Iterator[str]:
    for place, (name, value) in enumerate(envs.items(), start=1):
        if problem := name_problem(name):
            yield f"the name of variable {place} {problem}"
        elif isinstance(value, dict):
            if value.keys() != {"secret"} or not _is_secret_name(value["secret"]):
                yield f'{name} must be a text, or {{"secret": NAME}}'
        elif not isinstance(value, str):
            yield f'{name} must be a text, or {{"secret": NAME}}'
        elif problem := env_value_problem(value):
            yield f"{name} {problem}"


def _is_secret_name(value: Any) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _volumes(value: Any) -> tuple[VolumeMount, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list of volumes")  # noqa: TRY004  pydantic reports ValueError only
    mounts = []
    for place, it in enumerate(value[: MOUNTS_MAX + 1], start=1):
        if not isinstance(it, dict) or it.keys() != {"id", "mountPath"}:
            raise ValueError(f"volume {place} must have id and mountPath, and nothing else")
        volume_id, path = it["id"], it["mountPath"]
        if not isinstance(volume_id, str) or not 0 < len(volume_id) <= 255 or not volume_id.isprintable():
            raise ValueError(f"the id of volume {place} must be a text of 1 to 255 characters")
        if problem := path_problem(path) if isinstance(path, str) else "must be a text":
            raise ValueError(f"the mountPath of volume {place} {problem}")
        mounts.append(VolumeMount(volume_id, path))
    if problem := mounts_problem(mounts):
        raise ValueError(problem)
    return tuple(mounts)


VOLUMES_SCHEMA = {
    "type": "array",
    "maxItems": MOUNTS_MAX,
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["id", "mountPath"],
        "properties": {
            "id": {"type": "string", "minLength": 1, "maxLength": 255},
            "mountPath": {"type": "string", "pattern": "^/.*[^/]", "maxLength": PATH_CHARS_MAX},
        },
    },
}

_Image = Annotated[
    StrictStr,
    Field(json_schema_extra={**NOT_BLANK, "maxLength": IMAGE_CHARS_MAX}),
    AfterValidator(_image),
]
ImageUrl = Annotated[_Image | None, NotNull(), Code("INVALID_IMAGE")]
Command = Annotated[
    Annotated[
        StrictStr,
        Field(max_length=COMMAND_CHARS_MAX, json_schema_extra=NOT_BLANK),
        AfterValidator(_command),
    ]
    | None,
    NotNull(),
    Code("INVALID_COMMAND"),
]
Ports = Annotated[
    Annotated[tuple[StrictStr, ...], Field(max_length=MAX_PORTS), AfterValidator(_ports)] | None,
    NotNull(),
    Code("INVALID_PORTS"),
]
MinCudaVersion = Annotated[
    Annotated[StrictStr, Field(pattern=r"^[0-9]{1,2}\.[0-9]{1,2}$")] | None,
    NotNull(),
    Code("INVALID_MIN_CUDA_VERSION"),
]
RegistryAuthId = Annotated[ShortText | None, NotNull(), Code("INVALID_REGISTRY_AUTH_ID")]
Envs = Annotated[
    tuple[GivenEnv, ...], PlainValidator(_envs), WithJsonSchema(ENVS_SCHEMA), Code("INVALID_ENVS")
]
Volumes = Annotated[
    tuple[VolumeMount, ...],
    PlainValidator(_volumes),
    WithJsonSchema(VOLUMES_SCHEMA),
    Code("INVALID_VOLUMES"),
]


class PrewarmBody(RequestModel):
    """An image to pull into a region."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"

    image_url: Annotated[_Image, Code("INVALID_IMAGE")]
    region: Annotated[
        ShortText, Code("INVALID_REGION"), Words("must be a region, like one of GET /api/regions")
    ]
    registry_auth_id: RegistryAuthId = None
    products: Annotated[
        Annotated[tuple[ShortText, ...], Field(max_length=PRODUCTS_MAX)] | None,
        NotNull(),
        Code("INVALID_PRODUCTS"),
        Words(f"must be a list of up to {PRODUCTS_MAX} products, each by its id or name"),
    ] = None
    note: Annotated[
        ShortText | None, NotNull(), Code("INVALID_NOTE"), Words("must be a text of 1 to 200 characters")
    ] = None

    def to_spec(self) -> PrewarmSpec:
        """Return what is asked for."""
        return PrewarmSpec(
            self.image_url, self.region, self.registry_auth_id or "", self.products or (), self.note or ""
        )
