"""The body of a create call, checked by the cloud's rules and turned into a typed request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuherd.simulator.catalogue import DISK_GB_MAX, DISK_GB_MIN
from gpuherd.simulator.errors import invalid
from gpuherd.simulator.fields import Fields

RESERVED_PORTS = frozenset({2222, 2223, 2224})
PORTS_AND_TOOLS_MAX = 15
PROTOCOLS = ("http", "tcp")
BILLING_MODES = ("onDemand", "monthly", "spot")

_CUDA_VERSION = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}")
_PORT = re.compile(r"\s*([0-9]{1,5})/([a-z]+)\s*")


class ExposedPort(NamedTuple):
    """A port of the container that the world may reach."""

    number: int
    protocol: str


class Tool(NamedTuple):
    """Something the cloud itself adds to the container, such as Jupyter."""

    name: str
    port: int
    protocol: str


class NetworkStorage(NamedTuple):
    """A network volume to mount."""

    id: str
    mount_point: str


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """One create request, parsed."""

    product_id: str
    image_url: str = field(default="docker.io/library/ubuntu:22.04")
    name: str = ""
    gpu_num: int = 1
    disk_gb: int = 60
    kind: str = "gpu"
    image_auth: str = field(default="", repr=False)
    image_auth_id: str = ""
    ports: tuple[ExposedPort, ...] = ()
    tools: tuple[Tool, ...] = ()
    envs: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    command: str = ""
    entrypoint: str = ""
    cluster_id: str = ""
    network_storages: tuple[NetworkStorage, ...] = ()
    network_id: str = ""
    billing_mode: str = "onDemand"
    months: int = 0
    min_cuda_version: str = ""


def read_create_request(body: Mapping[str, object]) -> CreateRequest:
    """Check a JSON body field by field; a missing `kind` means a GPU."""
    fields = Fields(body)
    kind = fields.one_of("kind", ("gpu", "cpu"), "gpu")
    tools = tuple(_read_tool(tool) for tool in fields.items("tools", most=PORTS_AND_TOOLS_MAX))
    ports = read_ports(fields.text("ports", longest=1000))
    check_ports(ports, tools)
    months = fields.whole("month", low=0, high=120, default=0)
    mode = fields.one_of("billingMode", BILLING_MODES, "onDemand")
    return CreateRequest(
        name=fields.text("name"),
        product_id=fields.text("productId", shortest=1),
        gpu_num=fields.whole("gpuNum", low=1, high=8) if kind == "gpu" else 0,
        disk_gb=_read_disk_gb(fields, kind),
        image_url=fields.text("imageUrl", shortest=1, longest=500),
        kind=kind,
        image_auth=fields.text("imageAuth", longest=10_239),
        image_auth_id=fields.text("imageAuthId"),
        ports=ports,
        tools=tools,
        envs=read_envs(fields),
        command=fields.text("command", longest=2047),
        entrypoint=fields.text("entrypoint", longest=2047),
        cluster_id=fields.text("clusterId"),
        network_storages=tuple(
            NetworkStorage(
                storage.text("Id", shortest=1), storage.text("mountPoint", longest=4095) or "/network"
            )
            for storage in fields.items("networkStorages", most=30)
        ),
        network_id=fields.text("networkId"),
        billing_mode="monthly" if months else mode,
        months=months,
        min_cuda_version=read_cuda_version(fields),
    )


def read_ports(text: str) -> tuple[ExposedPort, ...]:
    """Parse the create call's spelling, `80/http,3306/tcp`."""
    ports = []
    for entry in filter(None, text.split(",")):
        parsed = _PORT.fullmatch(entry)
        if parsed is None or parsed[2] not in PROTOCOLS:
            raise invalid("ports", f"cannot read {entry[:40]!r}, write for example 80/http,22/tcp")
        ports.append(ExposedPort(int(parsed[1]), parsed[2]))
    return tuple(ports)


def check_ports(ports: Sequence[ExposedPort], tools: Sequence[Tool]) -> None:
    """Refuse numbers that the cloud keeps for itself, doubles, and too many."""
    numbers = [port.number for port in ports]
    for number in (*numbers, *(tool.port for tool in tools)):
        if not 1 <= number <= 65535 or number in RESERVED_PORTS:
            raise invalid("ports", f"port {number} cannot be exposed")
    if len(set(numbers)) < len(numbers):
        raise invalid("ports", "a port is named twice")
    if len(ports) + len(tools) > PORTS_AND_TOOLS_MAX:
        raise invalid("ports", f"ports and tools together must not exceed {PORTS_AND_TOOLS_MAX}")


def read_envs(fields: Fields) -> tuple[tuple[str, str], ...]:
    """Read the list of variables; the value may be long, the key not."""
    return tuple(
        (env.text("key", shortest=1, longest=511), env.text("value", longest=4095))
        for env in fields.items("envs", most=100)
    )


def read_cuda_version(fields: Fields) -> str:
    """Read a version such as 12.4; what is none is refused."""
    version = fields.text("minCudaVersion")
    if version and _CUDA_VERSION.fullmatch(version) is None:
        raise invalid("minCudaVersion", "must be a version such as 12.4")
    return version


def _read_disk_gb(fields: Fields, kind: str) -> int:
    default = None if kind == "gpu" else DISK_GB_MIN
    # Too small is quietly raised, too large is refused.
    return max(DISK_GB_MIN, fields.whole("rootfsSize", low=0, high=DISK_GB_MAX, default=default))


def _read_tool(tool: Fields) -> Tool:
    return Tool(
        tool.text("name", shortest=1),
        tool.whole("port", low=1, high=65535),
        tool.one_of("type", PROTOCOLS, "http"),
    )
