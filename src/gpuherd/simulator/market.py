"""Stock, placement and prices, and how the market moves by itself."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Container,
    Iterator,
    Mapping,
)
from dataclasses import dataclass
from random import Random

from gpuherd.simulator.simulated_bill import HOUR_S
from gpuherd.simulator.simulated_catalogue import CloudCatalogue, Product
from gpuherd.simulator.simulated_request import (
    CreateRequest,
    ExposedPort,
    SimulatedError,
    insufficient_resource,
    not_found,
)


@dataclass(frozen=True, slots=True)
class Weather:
    """The parameters of the market; by default it does not move."""

    # Spot prices move at most by this share from their start, one step every `walk_every_s`.
    price_range: float = 0.0
    walk_every_s: float = HOUR_S
    # True if a running machine pays today's price, False for the price at its rental.
    price_follows: bool = False
    # Mean seconds for which a product is in stock in a cluster, before it is sold out.
    in_stock_s: float | None = None
    out_of_stock_s: float = HOUR_S
    # Mean seconds until a spot machine is evicted, after the guaranteed hour.
    reclaim_mean_s: float | None = None
    # The shares of evictions with a shorter notice, and with none.
    short_notice: float = 0.1
    no_notice: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.price_range < 1:
            raise ValueError("priceRange must be at least 0 and below 1")
        if not 0 <= self.short_notice + self.no_notice <= 1:
            raise ValueError("shortNotice and noNotice are parts of 1")
        for seconds in (self.walk_every_s, self.in_stock_s, self.out_of_stock_s, self.reclaim_mean_s):
            if seconds is not None and not seconds > 0:
                raise ValueError("a time must be above 0")


CALM = Weather()


def walked(product: Product, began_at: int, weather: Weather, rng: Random) -> int:
    """Return the next spot price of a product. It stays within the range of its first price."""
    step = rng.uniform(-1, 1) * began_at * weather.price_range / 4
    low, high = began_at * (1 - weather.price_range), began_at * (1 + weather.price_range)
    return max(1, round(min(high, max(low, product.spot_price + step))))


def reclaim_after_s(weather: Weather, guaranteed_s: float, rng: Random) -> float | None:
    """Return how long after its start a spot machine gets its notice; None if never."""
    if weather.reclaim_mean_s is None:
        return None
    return guaranteed_s + rng.expovariate(1 / weather.reclaim_mean_s)


def notice_s(weather: Weather, usual_s: float, rng: Random) -> float:
    """Return the length of the notice: the usual time, a part of it, or zero."""
    draw = rng.random()
    if draw < weather.no_notice:
        return 0.0
    if draw < weather.no_notice + weather.short_notice:
        return usual_s * rng.random()
    return usual_s


def stock_turn_s(weather: Weather, rng: Random, *, in_stock: bool) -> float | None:
    """Return how long the present stock state lasts; None if it never changes."""
    if weather.in_stock_s is None:
        return None
    return rng.expovariate(1 / (weather.in_stock_s if in_stock else weather.out_of_stock_s))


LOW_UNITS = 5
HIGH_UNITS = 40


class Stock:
    """Free units per product and cluster; a unit is one GPU."""

    def __init__(self, catalogue: CloudCatalogue, units: int) -> None:
        self._free = {
            (product.id, cluster_id): units
            for product in catalogue.products
            for cluster_id in product.cluster_ids
        }
        # Not for sale now, even if units are free.
        self.withheld: set[tuple[str, str]] = set()

    def sells(self, product_id: str, cluster_id: str) -> bool:
        return (product_id, cluster_id) in self._free

    def set_units(self, product_id: str, cluster_id: str, units: int) -> None:
        if not self.sells(product_id, cluster_id):
            raise ValueError(f"{product_id!r} is not sold in {cluster_id!r}")
        if units < 0:
            raise ValueError("there cannot be fewer than 0 units")
        self._free[product_id, cluster_id] = units

    def free(self, product_id: str, cluster_id: str) -> int:
        place = product_id, cluster_id
        return 0 if place in self.withheld else self._free.get(place, 0)

    def take(self, product_id: str, cluster_id: str, units: int) -> None:
        self._free[product_id, cluster_id] -= units

    def release(self, product_id: str, cluster_id: str, units: int) -> None:
        self._free[product_id, cluster_id] += units

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        return ((product_id, cluster_id, units) for (product_id, cluster_id), units in self._free.items())


def inventory_state(units: int) -> str:
    """Return the cloud's word for a number of free units."""
    if units <= 0:
        return "none"
    if units < LOW_UNITS:
        return "low"
    return "normal" if units < HIGH_UNITS else "high"


SSH_PORT = 22
PROXY_PORTS = range(30_000, 40_000)
FreeUnits = Callable[[str, str], int]


@dataclass(frozen=True, slots=True)
class Placement:
    """A cluster, the price units per hour of one GPU (or of a machine without one), and the hardware."""

    cluster_id: str
    price: int
    product_name: str
    cpu_num: int
    memory_gb: int


def place(request: CreateRequest, catalogue: CloudCatalogue, free_units: FreeUnits, rng: Random) -> Placement:
    """Choose a cluster like the cloud: the requested one, or any with enough units."""
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
    """Return a new id. A reloaded world with the same seed would otherwise draw the same ids again."""
    while (machine_id := f"{rng.getrandbits(64):016x}") in taken:
        continue
    return machine_id


def proxy_ports(request: CreateRequest, before: Mapping[int, int], rng: Random) -> dict[int, int]:
    """Return new proxy ports for SSH and every TCP port; none was used before."""
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
