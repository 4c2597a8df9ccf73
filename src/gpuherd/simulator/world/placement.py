"""Decides whether a request can be sold at all, where it will run, at what price, and behind which ports."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from random import Random

from gpuherd.simulator.catalogue import CloudCatalogue, Product
from gpuherd.simulator.create_request import CreateRequest, ExposedPort
from gpuherd.simulator.errors import SimulatedError, insufficient_resource, not_found

SSH_PORT = 22
PROXY_PORTS = range(30_000, 40_000)

FreeUnits = Callable[[str, str], int]


@dataclass(frozen=True, slots=True)
class Placement:
    """A cluster, the price units that one GPU (or a machine without) costs an hour, and what one gets."""

    cluster_id: str
    price: int
    product_name: str
    cpu_num: int
    memory_gb: int


def place(request: CreateRequest, catalogue: CloudCatalogue, free_units: FreeUnits, rng: Random) -> Placement:
    """Choose a cluster as the cloud does: the one asked for, or any that has enough."""
    if request.cluster_id and catalogue.cluster(request.cluster_id) is None:
        raise not_found("cluster")
    if request.kind == "cpu":
        return _place_cpu(request, catalogue, rng)
    product = catalogue.product(request.product_id)
    if product is None:
        raise not_found("product")
    price = _price(request, product)
    wanted = (request.cluster_id,) if request.cluster_id else product.cluster_ids
    candidates = [
        cluster_id for cluster_id in wanted if free_units(product.id, cluster_id) >= request.gpu_num
    ]
    if not candidates:
        raise insufficient_resource(product.id)
    return Placement(
        rng.choice(candidates),
        price,
        product.name,
        product.cpu_per_gpu * request.gpu_num,
        product.memory_gb_per_gpu * request.gpu_num,
    )


def new_id(taken: Container[str], rng: Random) -> str:
    """Draw an id; a world that was kept and reloaded with the same seed would draw the same ones again."""
    while (machine_id := f"{rng.getrandbits(64):016x}") in taken:
        continue
    return machine_id


def proxy_ports(request: CreateRequest, before: Mapping[int, int], rng: Random) -> dict[int, int]:
    """Give SSH and every TCP port a new place at the proxy, none of those that were used before."""
    exposed = [*request.ports, *(ExposedPort(tool.port, tool.protocol) for tool in request.tools)]
    numbers = {SSH_PORT, *(port.number for port in exposed if port.protocol == "tcp")}
    enough = len(numbers) + len(before)
    drawn = [port for port in rng.sample(PROXY_PORTS, enough) if port not in before.values()]
    return dict(zip(sorted(numbers), drawn, strict=False))


def _price(request: CreateRequest, product: Product) -> int:
    if request.billing_mode not in product.billing_methods:
        raise SimulatedError(
            400, "UNSUPPORTED_BILLING_MODE", f"product {product.id} is not sold as {request.billing_mode}"
        )
    return product.spot_price if request.billing_mode == "spot" else product.price


def _place_cpu(request: CreateRequest, catalogue: CloudCatalogue, rng: Random) -> Placement:
    product = catalogue.cpu_product(request.product_id)
    if product is None:
        raise not_found("product")
    if request.billing_mode == "spot":
        raise SimulatedError(400, "UNSUPPORTED_BILLING_MODE", "a cpu product is not sold as spot")
    if request.cluster_id and request.cluster_id not in product.cluster_ids:
        raise insufficient_resource(product.id)
    cluster_id = request.cluster_id or rng.choice(product.cluster_ids)
    return Placement(cluster_id, product.price, product.name, product.cpu_num, product.memory_gb)
