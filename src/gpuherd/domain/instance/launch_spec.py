"""What a user asks for: product, place, price, image, environment, ports, volumes, and when it ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from operator import attrgetter

from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.secret import HIDDEN, Secret


class OnFailure(StrEnum):
    """What happens to the machine when the create fails or times out."""

    DELETE = "delete"
    KEEP = "keep"


class Optimize(StrEnum):
    """What is more important: the order of the regions, or the price."""

    REGION = "region"
    PRICE = "price"


@dataclass(frozen=True)
class LaunchSpec:
    """What the user asks for."""

    # The first of the names, if there are several.
    product_name: str
    # Empty if an image is given instead.
    template_id: str
    gpu_num: int = 1
    disk_gb: int = 60
    # Codes, best first; empty means anywhere.
    regions: tuple[str, ...] = ()
    billing_mode: BillingMode = BillingMode.SPOT
    hourly_usd_max: Decimal | None = None
    optimize: Optimize = Optimize.REGION
    # How long to wait for a matching offer if there is none now.
    capacity_wait_s: int = 0
    # All accepted products, best first; empty if there is only one.
    product_names: tuple[str, ...] = ()
    # A spot spec accepts on-demand offers after this wait; None: never.
    fallback_after_s: int | None = None
    # What runs, beside or instead of the template. These values win; variables are merged.
    image_url: str | None = None
    command: str | None = None
    # As `8888/http`.
    ports: tuple[str, ...] | None = None
    min_cuda_version: str | None = None
    registry_auth_id: str | None = None
    envs: tuple[EnvVar, ...] = ()
    # Network volumes of the account. They determine the region.
    volumes: tuple[VolumeMount, ...] = ()

    @property
    def needs_template(self) -> bool:
        """True if the template is a part of what runs."""
        return bool(self.template_id) or self.image_url is None

    @property
    def inputs(self) -> GivenInputs:
        """The values that replace those of the template."""
        # The common case.
        if _given(self) == _NOTHING_GIVEN:
            return NO_INPUTS
        return GivenInputs(
            image_url=self.image_url,
            command=self.command,
            ports=self.ports,
            min_cuda_version=self.min_cuda_version,
            registry_auth_id=self.registry_auth_id,
            env_names=tuple([it.name for it in self.envs]),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all accepted products, best first."""
        return self.product_names or (self.product_name,)

    @property
    def patience_s(self) -> int:
        """How long the rental may take; 0: now or never."""
        return max(self.capacity_wait_s, self.fallback_after_s or 0)


_given = attrgetter("image_url", "command", "ports", "min_cuda_version", "registry_auth_id", "envs")
_NOTHING_GIVEN = (None, None, None, None, None, ())


@dataclass(frozen=True, kw_only=True)
class GivenInputs:
    """The values that replace those of the template; None keeps the template's value."""

    image_url: str | None = None
    command: str | None = None
    ports: tuple[str, ...] | None = None
    min_cuda_version: str | None = None
    registry_auth_id: str | None = None
    # Names of the variables beside those of the template.
    env_names: tuple[str, ...] = ()


NO_INPUTS = GivenInputs()
IMAGE_CHARS_MAX = 500
DOCKER_HUB = "docker.io"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"


_IMAGE = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)


def image_problem(image: str) -> str | None:
    """Return what is wrong with an image reference; None if it is valid."""
    if len(image) > IMAGE_CHARS_MAX:
        return f"must not be longer than {IMAGE_CHARS_MAX} characters"
    if "://" in image:
        return "must be without a scheme, like docker.io/pytorch/pytorch:latest"
    if not _IMAGE.fullmatch(image):
        return "must be the reference of an image, like docker.io/pytorch/pytorch:latest"
    return None


def registry_of(image: str) -> str:
    """Return the host from which an image is pulled."""
    first, slash, _ = image.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost")
    return first.casefold() if is_host else DOCKER_HUB


# Carries the tag of the machine beside its name, so users may not set it.
TAG_VARIABLE = "GPUHERD_TAG"


# The cloud's maximum; one of them is the tag.
ENVS_MAX = 100


GIVEN_ENVS_MAX = ENVS_MAX - 1
NAME_CHARS_MAX = 511


# Values of at least this length are redacted even in part. A shorter one may be an ordinary word.
CREDENTIAL_CHARS = 8


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class GivenEnv:
    """A variable of a request: with its value, or with the name of the secret that holds it."""

    name: str
    value: Secret | None = None
    secret: str = ""


@dataclass(frozen=True)
class EnvVar:
    """A stored variable: with its sealed value, or with the name of the secret."""

    name: str
    sealed: str = field(default="", repr=False)
    secret: str = ""

    @property
    def shown(self) -> str | dict[str, str]:
        """What everyone may see of its value."""
        return {"secret": self.secret} if self.secret else HIDDEN


@dataclass(frozen=True)
class OpenedEnv:
    """A variable with its value, at the moment of the create call."""

    name: str
    value: Secret
    is_named_secret: bool = False

    @property
    def is_credential(self) -> bool:
        """True if even a part of the value must be redacted."""
        return self.is_named_secret or len(self.value.reveal()) >= CREDENTIAL_CHARS


def name_problem(name: str) -> str | None:
    """Return what is wrong with the name of a variable. It does not repeat the name, which may be a value."""
    if not _NAME.fullmatch(name):
        return "must be letters, digits, _ . or -, and not begin with a digit"
    if len(name) > NAME_CHARS_MAX:
        return f"must not be longer than {NAME_CHARS_MAX} characters"
    # guard: the tag cannot be set by a variable
    if name.upper() == TAG_VARIABLE:
        return f"must not be {TAG_VARIABLE}: gpuherd finds its machines by it"
    return None


def shown_envs(envs: Sequence[EnvVar]) -> dict[str, str | dict[str, str]]:
    """Return what everyone may see of the variables: their names, and the names of secrets."""
    return {it.name: it.shown for it in envs}


RESERVED_PORTS = frozenset({2222, 2223, 2224})
MAX_PORTS = 15
PORT_KINDS = ("http", "tcp")
_PORT = re.compile(r"([0-9]{1,5})/([a-z]+)")


def parse_port(text: str) -> tuple[int, str]:
    """Return number and type of a port; `ValueError` gives the reason if it is invalid."""
    found = _PORT.fullmatch(text)
    if found is None or found[2] not in PORT_KINDS:
        raise ValueError("must be written like 8888/http or 22/tcp")
    number = int(found[1])
    if problem := number_problem(number):
        raise ValueError(problem)
    return number, found[2]


def parse_ports(texts: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """Return all ports; `ValueError` also if there are too many, or one occurs twice."""
    if len(texts) > MAX_PORTS:
        raise ValueError(f"must not be more than {MAX_PORTS}")
    ports = tuple(map(parse_port, texts))
    if len({number for number, _ in ports}) < len(ports):
        raise ValueError("must not name a port twice")
    return ports


def port_text(port: tuple[int, str]) -> str:
    """Return a port in the form that people write."""
    return f"{port[0]}/{port[1]}"


def number_problem(number: int) -> str | None:
    """Return why a port cannot be opened; None if it can."""
    if not 1 <= number <= 65535 or number in RESERVED_PORTS:
        return f"port {number} cannot be used"
    return None


MOUNTS_MAX = 30
PATH_CHARS_MAX = 4095


@dataclass(frozen=True)
class VolumeMount:
    """One volume of the account at one path."""

    volume_id: str
    mount_path: str


def path_problem(path: str) -> str | None:
    """Return why nothing can be mounted at a path; None if it can."""
    if not path.startswith("/") or not path.strip("/"):
        return "must be an absolute path below /, like /data"
    if len(path) > PATH_CHARS_MAX or not path.isprintable():
        return f"must be at most {PATH_CHARS_MAX} visible characters"
    if {"..", "."} & set(path.split("/")):
        return "must not have . or .. in it"
    return None


def mounts_problem(mounts: Sequence[VolumeMount]) -> str | None:
    """Return why these cannot be mounted together; None if they can."""
    if len(mounts) > MOUNTS_MAX:
        return f"must not be more than {MOUNTS_MAX}"
    if len({it.volume_id for it in mounts}) < len(mounts):
        return "must not name a volume twice"
    if len({it.mount_path.rstrip("/") for it in mounts}) < len(mounts):
        return "must not mount two volumes at one path"
    return None
