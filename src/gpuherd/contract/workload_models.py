"""What runs on an instance: image, command, ports, environment and volumes.

No problem repeats the name or the value of a variable before it is known to be a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator, StrictStr, WithJsonSchema

from gpuherd.contract.body_models import (
    ENV_VALUE_CHARS_MAX,
    NOT_BLANK,
    Code,
    NotNull,
    ShortText,
    env_value_problem,
)
from gpuherd.contract.wire_models import ReplyModel


class MountedVolume(ReplyModel, needs=("id",)):
    """A network volume of the account, and where the machine has it."""

    id: str
    mount_path: str


# Bodies

IMAGE_CHARS_MAX = 500
COMMAND_CHARS_MAX = 2047
PORTS_MAX = 15
# The cloud keeps these for itself.
_RESERVED_PORTS = frozenset({2222, 2223, 2224})
# The cloud takes 100; one of them is the tag.
ENVS_MAX = 99
VARIABLE_CHARS_MAX = 511
# Carries the tag of the machine beside its name, so no user may set it.
_TAG_VARIABLE = "GPUHERD_TAG"
MOUNTS_MAX = 30
PATH_CHARS_MAX = 4095

SECRET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_PORT = re.compile(r"([0-9]{1,5})/(?:http|tcp)")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)

ENVS_SCHEMA = {
    "type": "object",
    "maxProperties": ENVS_MAX,
    "propertyNames": {"pattern": f"^{_VARIABLE.pattern}$", "maxLength": VARIABLE_CHARS_MAX},
    "additionalProperties": {
        "anyOf": [
            {"type": "string", "maxLength": ENV_VALUE_CHARS_MAX},
            {
                "type": "object",
                "properties": {"secret": {"type": "string", "pattern": f"^{SECRET_NAME.pattern}$"}},
                "required": ["secret"],
                "additionalProperties": False,
            },
        ]
    },
}
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


def checked_image(image: str) -> str:
    """Return the reference of an image, or raise what is wrong with it."""
    if len(image) > IMAGE_CHARS_MAX:
        raise ValueError(f"must not be longer than {IMAGE_CHARS_MAX} characters")
    if "://" in image:
        raise ValueError("must be without a scheme, like docker.io/pytorch/pytorch:latest")
    if not _IMAGE.fullmatch(image):
        raise ValueError("must be the reference of an image, like docker.io/pytorch/pytorch:latest")
    return image


def _command(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    if _UNPRINTABLE.search(value):
        raise ValueError("must not contain control characters")
    return value


def _port_number(text: str) -> int:
    found = _PORT.fullmatch(text)
    if found is None:
        raise ValueError("must be written like 8888/http or 22/tcp")
    number = int(found[1])
    if not 1 <= number <= 65535 or number in _RESERVED_PORTS:
        raise ValueError(f"port {number} cannot be used")
    return number


def _ports(value: tuple[str, ...]) -> tuple[str, ...]:
    if len({_port_number(text) for text in value}) < len(value):
        raise ValueError("must not name a port twice")
    return value


def _envs(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("must be an object of names and texts")  # noqa: TRY004  pydantic reports ValueError only
    if len(value) > ENVS_MAX:
        raise ValueError(f"must not be more than {ENVS_MAX} variables")
    if problems := list(_env_problems(value)):
        raise ValueError("; ".join(problems))
    return value


def _env_problems(envs: dict[str, Any]) -> Iterator[str]:
    for place, (name, value) in enumerate(envs.items(), start=1):
        if problem := variable_problem(name):
            yield f"the name of variable {place} {problem}"
        elif isinstance(value, dict):
            if value.keys() != {"secret"} or not _is_secret_name(value["secret"]):
                yield f'{name} must be a text, or {{"secret": NAME}}'
        elif not isinstance(value, str):
            yield f'{name} must be a text, or {{"secret": NAME}}'
        elif problem := env_value_problem(value):
            yield f"{name} {problem}"


def variable_problem(name: str) -> str | None:
    """Return what is wrong with the name of a variable, without the name: it may be a value."""
    if not _VARIABLE.fullmatch(name):
        return "must be letters, digits, _ . or -, and not begin with a digit"
    if len(name) > VARIABLE_CHARS_MAX:
        return f"must not be longer than {VARIABLE_CHARS_MAX} characters"
    # guard: the tag cannot be set by a variable
    if name.upper() == _TAG_VARIABLE:
        return f"must not be {_TAG_VARIABLE}: gpuherd finds its machines by it"
    return None


def _is_secret_name(value: Any) -> bool:
    return isinstance(value, str) and SECRET_NAME.fullmatch(value) is not None


def _volumes(value: Any) -> tuple[MountedVolume, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list of volumes")  # noqa: TRY004  pydantic reports ValueError only
    mounts = []
    for place, given in enumerate(value[: MOUNTS_MAX + 1], start=1):
        if not isinstance(given, dict) or given.keys() != {"id", "mountPath"}:
            raise ValueError(f"volume {place} must have id and mountPath, and nothing else")
        volume_id, path = given["id"], given["mountPath"]
        if not isinstance(volume_id, str) or not 0 < len(volume_id) <= 255 or not volume_id.isprintable():
            raise ValueError(f"the id of volume {place} must be a text of 1 to 255 characters")
        if problem := _path_problem(path) if isinstance(path, str) else "must be a text":
            raise ValueError(f"the mountPath of volume {place} {problem}")
        mounts.append(MountedVolume(id=volume_id, mount_path=path))
    if problem := _mounts_problem(mounts):
        raise ValueError(problem)
    return tuple(mounts)


def _path_problem(path: str) -> str | None:
    """Return why nothing can be mounted there."""
    if not path.startswith("/") or not path.strip("/"):
        return "must be an absolute path below /, like /data"
    if len(path) > PATH_CHARS_MAX or not path.isprintable():
        return f"must be at most {PATH_CHARS_MAX} visible characters"
    if {"..", "."} & set(path.split("/")):
        return "must not have . or .. in it"
    return None


def _mounts_problem(mounts: Sequence[MountedVolume]) -> str | None:
    """Return why these cannot be mounted together."""
    if len(mounts) > MOUNTS_MAX:
        return f"must not be more than {MOUNTS_MAX}"
    if len({mount.id for mount in mounts}) < len(mounts):
        return "must not name a volume twice"
    if len({mount.mount_path.rstrip("/") for mount in mounts}) < len(mounts):
        return "must not mount two volumes at one path"
    return None


ImageText = Annotated[
    StrictStr,
    Field(json_schema_extra={**NOT_BLANK, "maxLength": IMAGE_CHARS_MAX}),
    AfterValidator(checked_image),
]
ImageUrl = Annotated[ImageText | None, NotNull(), Code("INVALID_IMAGE")]
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
    Annotated[tuple[StrictStr, ...], Field(max_length=PORTS_MAX), AfterValidator(_ports)] | None,
    NotNull(),
    Code("INVALID_PORTS"),
]
MinCudaVersion = Annotated[
    Annotated[StrictStr, Field(pattern=r"^[0-9]{1,2}\.[0-9]{1,2}$")] | None,
    NotNull(),
    Code("INVALID_MIN_CUDA_VERSION"),
]
RegistryAuthId = Annotated[ShortText | None, NotNull(), Code("INVALID_REGISTRY_AUTH_ID")]
# A text, or {"secret": NAME}.
Envs = Annotated[
    dict[str, Any],
    Field(repr=False),
    PlainValidator(_envs),
    WithJsonSchema(ENVS_SCHEMA),
    Code("INVALID_ENVS"),
]
Volumes = Annotated[
    tuple[MountedVolume, ...],
    PlainValidator(_volumes),
    WithJsonSchema(VOLUMES_SCHEMA),
    Code("INVALID_VOLUMES"),
]
