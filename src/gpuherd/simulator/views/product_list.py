"""The products as a customer sees them today: with stock, and filtered by the query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuherd.simulator.catalogue import DISK_GB_MAX, Cluster, Product
from gpuherd.simulator.create_request import BILLING_MODES
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.world.state import WorldState


@dataclass(frozen=True, slots=True)
class ProductQuery:
    """Which products are wanted; empty means any."""

    cluster_id: str = ""
    product_name: str = ""
    gpu_num: int = 0
    min_cpu_per_gpu: int = 0
    min_memory_gb_per_gpu: int = 0
    min_disk_gb: int = 0
    billing_method: str = "onDemand"


@dataclass(frozen=True, slots=True)
class ProductOnSale:
    """A product with the units that are free, in the cluster asked about or in all of them."""

    product: Product
    units: int
    can_deploy: bool


def read_product_query(query: Mapping[str, object]) -> ProductQuery:
    fields = Fields(query)
    return ProductQuery(
        cluster_id=fields.text("clusterId"),
        product_name=fields.text("productName"),
        gpu_num=fields.whole("gpuNum", low=0, high=8, default=0),
        min_cpu_per_gpu=fields.whole("minCpuPerGpu", low=0, high=10_000, default=0),
        min_memory_gb_per_gpu=fields.whole("minMemoryPerGpu", low=0, high=100_000, default=0),
        min_disk_gb=fields.whole("minRootFSSize", low=0, high=10**9, default=0),
        billing_method=fields.one_of("billingMethod", BILLING_MODES, "onDemand"),
    )


def products_on_sale(state: WorldState, query: ProductQuery) -> list[ProductOnSale]:
    """Return what matches, sold out or not."""
    return [_on_sale(state, product, query) for product in state.catalogue.products if _fits(product, query)]


def gpu_names(state: WorldState, cluster: Cluster) -> list[str]:
    """Return the names of the GPUs that a cluster has."""
    return sorted({product.name for product in state.catalogue.products if cluster.id in product.cluster_ids})


def _on_sale(state: WorldState, product: Product, query: ProductQuery) -> ProductOnSale:
    clusters = (query.cluster_id,) if query.cluster_id else product.cluster_ids
    free = [state.free_units(product.id, cluster_id) for cluster_id in clusters]
    enough = any(units >= max(1, query.gpu_num) for units in free)
    return ProductOnSale(product, sum(free), enough)


def _fits(product: Product, query: ProductQuery) -> bool:
    return (
        (not query.cluster_id or query.cluster_id in product.cluster_ids)
        and query.product_name.casefold() in product.name.casefold()
        and product.cpu_per_gpu >= query.min_cpu_per_gpu
        and product.memory_gb_per_gpu >= query.min_memory_gb_per_gpu
        and query.min_disk_gb <= DISK_GB_MAX
        and query.billing_method in product.billing_methods
    )
