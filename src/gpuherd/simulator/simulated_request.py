"""Parses requests to the simulated cloud, and builds its error messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuherd.simulator.simulated_catalogue import DISK_GB_MAX, DISK_GB_MIN


class SimulatedError(Exception):
    """An error reply as Novita words it: HTTP status, reason, message."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        from_gateway: bool = False,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.headers = dict(headers or {})
        # The proxy in front of Novita returns an HTML page, not Novita's JSON.
        self.from_gateway = from_gateway


class ConnectionCut(Exception):
    """The connection broke before a reply came."""

    def __init__(self, *, committed: bool) -> None:
        super().__init__("the connection was cut")
        self.committed = committed


class GarbageReply(Exception):
    """A reply with status 200 and wrong content; `result` is the right content."""

    def __init__(self, style: str, result: object) -> None:
        super().__init__(f"the answer is garbage ({style})")
        self.style = style
        self.result = result


def invalid(field: str, problem: str) -> SimulatedError:
    return SimulatedError(400, "VALIDATOR_PARAM", f"invalid parameter {field}: {problem}")


def instance_not_found(instance_id: str) -> SimulatedError:
    # The documents say 400 for this reason; the live API answers 404 for instances.
    return SimulatedError(404, "RESOURCE_NOT_FOUND", f"instance {instance_id} not found")


def not_found(what: str) -> SimulatedError:
    return SimulatedError(400, "RESOURCE_NOT_FOUND", f"{what} not found")


def invalid_state(action: str, status: str) -> SimulatedError:
    return SimulatedError(400, "REQUEST", f"invalid state change: cannot {action} while {status}")


def insufficient_resource(product_id: str) -> SimulatedError:
    return SimulatedError(400, "INSUFFICIENT_RESOURCE", f"insufficient resource for product {product_id}")


ID_LONGEST = 1 << 20
_WHOLE = re.compile(r"-?[0-9]{1,18}")


class Fields:
    """A JSON object or a query. Values are checked one by one; unread names are ignored."""

    def __init__(self, values: Mapping[str, object], inside: str = "") -> None:
        self.values = values
        self._inside = inside

    def text(self, name: str, *, shortest: int = 0, longest: int = 255) -> str:
        value = self.values.get(name)
        if value is None:
            value = ""
        if not isinstance(value, str):
            raise invalid(self._inside + name, "must be a string")
        if len(value) < shortest:
            raise invalid(self._inside + name, "must not be empty")
        if len(value) > longest:
            raise invalid(self._inside + name, f"must not be longer than {longest} characters")
        return value

    def known_id(self, name: str) -> str:
        """Return an id of any length; an unknown one is rejected later."""
        return self.text(name, shortest=1, longest=ID_LONGEST)

    def one_of(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self.text(name) or default
        if value not in choices:
            raise invalid(self._inside + name, f"must be one of {', '.join(choices)}")
        return value

    def whole(self, name: str, *, low: int, high: int, default: int | None = None) -> int:
        value = self.values.get(name)
        if value is None or value == "":
            if default is None:
                raise invalid(self._inside + name, "is required")
            return default
        # Protobuf's JSON accepts a number, or the same number as a string.
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise invalid(self._inside + name, "must be a whole number")
        if not low <= value <= high:
            raise invalid(self._inside + name, f"must be between {low} and {high}")
        return value

    def number(self, name: str, *, low: float, high: float) -> float | None:
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise invalid(self._inside + name, "must be a number")
        if not low <= value <= high:
            raise invalid(self._inside + name, f"must be between {low:g} and {high:g}")
        return float(value)

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise invalid(self._inside + name, "must be true or false")
        return value

    def item(self, name: str) -> Fields:
        value = self.values.get(name)
        if not isinstance(value, Mapping):
            raise invalid(self._inside + name, "must be an object")
        return Fields(value, f"{self._inside}{name}.")

    def items(self, name: str, *, most: int) -> list[Fields]:
        by_index = self._by_index(name, most)
        return [by_index.item(str(index)) for index in range(len(by_index.names()))]

    def numbers(self, name: str, *, most: int, low: int, high: int) -> list[int]:
        by_index = self._by_index(name, most)
        return [by_index.whole(str(index), low=low, high=high) for index in range(len(by_index.names()))]

    def texts(self, name: str, *, most: int) -> list[str]:
        by_index = self._by_index(name, most)
        return [by_index.text(str(index), shortest=1) for index in range(len(by_index.names()))]

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def names(self) -> frozenset[str]:
        return frozenset(self.values)

    def _by_index(self, name: str, most: int) -> Fields:
        """Return a list as an object with indexes as names, so that an error can name one."""
        value = self.values.get(name)
        if value is None:
            value = ()
        if not isinstance(value, list | tuple):
            raise invalid(self._inside + name, "must be a list")
        if len(value) > most:
            raise invalid(self._inside + name, f"must not have more than {most} entries")
        return Fields({str(place): each for place, each in enumerate(value)}, f"{self._inside}{name}.")


RESERVED_PORTS = frozenset({2222, 2223, 2224})
PORTS_AND_TOOLS_MAX = 15
PROTOCOLS = ("http", "tcp")
BILLING_MODES = ("onDemand", "monthly", "spot")
_CUDA_VERSION = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}")
_PORT = re.compile(r"\s*([0-9]{1,5})/([a-z]+)\s*")


class ExposedPort(NamedTuple):
    """A container port to expose."""

    number: int
    protocol: str


class Tool(NamedTuple):
    """A tool that the cloud adds to the container, such as Jupyter."""

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
    """Reject reserved numbers, duplicates, and too many ports."""
    numbers = [port.number for port in ports]
    for number in (*numbers, *(tool.port for tool in tools)):
        if not 1 <= number <= 65535 or number in RESERVED_PORTS:
            raise invalid("ports", f"port {number} cannot be exposed")
    if len(set(numbers)) < len(numbers):
        raise invalid("ports", "a port is named twice")
    if len(ports) + len(tools) > PORTS_AND_TOOLS_MAX:
        raise invalid("ports", f"ports and tools together must not exceed {PORTS_AND_TOOLS_MAX}")


def read_envs(fields: Fields) -> tuple[tuple[str, str], ...]:
    """Parse the list of variables. A value may be long, a key not."""
    return tuple(
        (env.text("key", shortest=1, longest=511), env.text("value", longest=4095))
        for env in fields.items("envs", most=100)
    )


def read_cuda_version(fields: Fields) -> str:
    """Parse a version such as 12.4; reject anything else."""
    version = fields.text("minCudaVersion")
    if version and _CUDA_VERSION.fullmatch(version) is None:
        raise invalid("minCudaVersion", "must be a version such as 12.4")
    return version


def _read_disk_gb(fields: Fields, kind: str) -> int:
    default = None if kind == "gpu" else DISK_GB_MIN
    # A size that is too small is raised silently; one that is too large is rejected.
    return max(DISK_GB_MIN, fields.whole("rootfsSize", low=0, high=DISK_GB_MAX, default=default))


def _read_tool(tool: Fields) -> Tool:
    return Tool(
        tool.text("name", shortest=1),
        tool.whole("port", low=1, high=65535),
        tool.one_of("type", PROTOCOLS, "http"),
    )
