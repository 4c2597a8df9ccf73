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
    """What becomes of the machine when the create fails or times out."""

    DELETE = "delete"
    KEEP = "keep"


class Optimize(StrEnum):
    """What matters more: the order of the regions, or the price."""

    REGION = "region"
    PRICE = "price"


@dataclass(frozen=True)
class LaunchSpec:
    """What the user would accept."""

    # The first of the names, where there are several.
    product_name: str
    # Empty where an image is given instead.
    template_id: str
    gpu_num: int = 1
    disk_gb: int = 60
    # Codes, best first; empty means anywhere.
    regions: tuple[str, ...] = ()
    billing_mode: BillingMode = BillingMode.SPOT
    hourly_usd_max: Decimal | None = None
    optimize: Optimize = Optimize.REGION
    # How long to wait for an offer that fits, if there is none now.
    capacity_wait_s: int = 0
    # All products that would do, best first; empty where there is one.
    product_names: tuple[str, ...] = ()
    # A spot wish that may also be rented on demand once it has waited so long for spot; None: never.
    fallback_after_s: int | None = None
    # What runs, beside or instead of the template: what is given here wins, and variables are merged.
    image_url: str | None = None
    command: str | None = None
    # As `8888/http`.
    ports: tuple[str, ...] | None = None
    min_cuda_version: str | None = None
    registry_auth_id: str | None = None
    envs: tuple[EnvVar, ...] = ()
    # Network volumes of the account; they pin the region.
    volumes: tuple[VolumeMount, ...] = ()

    @property
    def needs_template(self) -> bool:
        """Whether a template is a part of what runs."""
        return bool(self.template_id) or self.image_url is None

    @property
    def inputs(self) -> GivenInputs:
        """What wins over the template."""
        # As nearly all wishes are.
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
        """What the products are called that would do, best first."""
        return self.product_names or (self.product_name,)

    @property
    def patience_s(self) -> int:
        """How long it may take until something is rented; 0: now or never."""
        return max(self.capacity_wait_s, self.fallback_after_s or 0)


_given = attrgetter("image_url", "command", "ports", "min_cuda_version", "registry_auth_id", "envs")
_NOTHING_GIVEN = (None, None, None, None, None, ())


@dataclass(frozen=True, kw_only=True)
class GivenInputs:
    """What wins over the template; None: it is as the template says."""

    image_url: str | None = None
    command: str | None = None
    ports: tuple[str, ...] | None = None
    min_cuda_version: str | None = None
    registry_auth_id: str | None = None
    # Of the variables beside those of the template.
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
    """Return what is wrong with the reference of an image."""
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


# Carries the tag of the machine beside its name, so nobody else may set it.
TAG_VARIABLE = "GPUHERD_TAG"


# So many the cloud takes; one of them is the tag.
ENVS_MAX = 100


GIVEN_ENVS_MAX = ENVS_MAX - 1
NAME_CHARS_MAX = 511


# So long a value is redacted also in pieces where an error quotes it; a shorter one may be any word.
CREDENTIAL_CHARS = 8


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class GivenEnv:
    """A variable as it was asked for: with its value, or with the name of the secret that holds it."""

    name: str
    value: Secret | None = None
    secret: str = ""


@dataclass(frozen=True)
class EnvVar:
    """A variable as it is remembered: with its value sealed, or with the name of the secret."""

    name: str
    sealed: str = field(default="", repr=False)
    secret: str = ""

    @property
    def shown(self) -> str | dict[str, str]:
        """What anybody may see of its value."""
        return {"secret": self.secret} if self.secret else HIDDEN


@dataclass(frozen=True)
class OpenedEnv:
    """A variable with its value, at the moment of the create call."""

    name: str
    value: Secret
    is_named_secret: bool = False

    @property
    def is_credential(self) -> bool:
        """Whether a piece of the value is enough to be redacted."""
        return self.is_named_secret or len(self.value.reveal()) >= CREDENTIAL_CHARS


def name_problem(name: str) -> str | None:
    """Return what is wrong with the name of a variable; it is not repeated, since it may be a value."""
    if not _NAME.fullmatch(name):
        return "must be letters, digits, _ . or -, and not begin with a digit"
    if len(name) > NAME_CHARS_MAX:
        return f"must not be longer than {NAME_CHARS_MAX} characters"
    # guard: the tag cannot be set by a variable
    if name.upper() == TAG_VARIABLE:
        return f"must not be {TAG_VARIABLE}: gpuherd finds its machines by it"
    return None


def shown_envs(envs: Sequence[EnvVar]) -> dict[str, str | dict[str, str]]:
    """Return what anybody may see of variables: their names, and which secrets are meant."""
    return {it.name: it.shown for it in envs}


RESERVED_PORTS = frozenset({2222, 2223, 2224})
MAX_PORTS = 15
PORT_KINDS = ("http", "tcp")
_PORT = re.compile(r"([0-9]{1,5})/([a-z]+)")


def parse_port(text: str) -> tuple[int, str]:
    """Return number and type of a port; `ValueError` says what is wrong with it."""
    found = _PORT.fullmatch(text)
    if found is None or found[2] not in PORT_KINDS:
        raise ValueError("must be written like 8888/http or 22/tcp")
    number = int(found[1])
    if problem := number_problem(number):
        raise ValueError(problem)
    return number, found[2]


def parse_ports(texts: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """Return all of them; `ValueError` also if there are too many, or one is there twice."""
    if len(texts) > MAX_PORTS:
        raise ValueError(f"must not be more than {MAX_PORTS}")
    ports = tuple(map(parse_port, texts))
    if len({number for number, _ in ports}) < len(ports):
        raise ValueError("must not name a port twice")
    return ports


def port_text(port: tuple[int, str]) -> str:
    """Return a port as people write it."""
    return f"{port[0]}/{port[1]}"


def number_problem(number: int) -> str | None:
    """Return why a port cannot be opened."""
    if not 1 <= number <= 65535 or number in RESERVED_PORTS:
        return f"port {number} cannot be used"
    return None


MOUNTS_MAX = 30
PATH_CHARS_MAX = 4095


@dataclass(frozen=True)
class VolumeMount:
    """One volume of the account at one place."""

    volume_id: str
    mount_path: str


def path_problem(path: str) -> str | None:
    """Return why nothing can be mounted there."""
    if not path.startswith("/") or not path.strip("/"):
        return "must be an absolute path below /, like /data"
    if len(path) > PATH_CHARS_MAX or not path.isprintable():
        return f"must be at most {PATH_CHARS_MAX} visible characters"
    if {"..", "."} & set(path.split("/")):
        return "must not have . or .. in it"
    return None


def mounts_problem(mounts: Sequence[VolumeMount]) -> str | None:
    """Return why these cannot be mounted together."""
    if len(mounts) > MOUNTS_MAX:
        return f"must not be more than {MOUNTS_MAX}"
    if len({it.volume_id for it in mounts}) < len(mounts):
        return "must not name a volume twice"
    if len({it.mount_path.rstrip("/") for it in mounts}) < len(mounts):
        return "must not mount two volumes at one path"
    return None
