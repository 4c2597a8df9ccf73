"""What the simulated cloud sells: clusters, GPU and CPU products, official templates."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

PRICE_UNITS_PER_USD = 100_000


"""Prices travel as whole numbers of 1/100,000 USD."""


DISK_GB_MIN = 10
DISK_GB_MAX = 6144
FREE_DISK_GB = 60


@dataclass(frozen=True, slots=True)
class Cluster:
    """A data center: the API uses the id, people read the label."""

    id: str
    label: str
    network_storage: bool = True
    instance_network: bool = True


@dataclass(frozen=True, slots=True)
class Product:
    """A GPU with its share of a host; prices are in price units for one GPU and one hour."""

    id: str
    name: str
    cpu_per_gpu: int
    memory_gb_per_gpu: int
    price: int
    spot_price: int
    cluster_ids: tuple[str, ...]
    # Regions whose label is shown although the cluster is no longer listed.
    retired_labels: tuple[str, ...] = ()

    @property
    def billing_methods(self) -> tuple[str, ...]:
        return ("onDemand", "spot", "monthly") if self.spot_price else ("onDemand", "monthly")

    @property
    def monthly_prices(self) -> tuple[tuple[int, int], ...]:
        """(months, price units a month): ten percent off for one month, thirty percent for a year."""
        hours = 720
        return ((1, self.price * hours * 90 // 100), (12, self.price * hours * 70 // 100))


@dataclass(frozen=True, slots=True)
class CpuProduct:
    """A machine without a GPU; the price is for the whole machine and one hour."""

    id: str
    name: str
    cpu_num: int
    memory_gb: int
    price: int
    cluster_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RegistryAuth:
    """A login for a registry of images."""

    id: str
    name: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"RegistryAuth({self.id!r}, {self.name!r})"


@dataclass(frozen=True, slots=True)
class StoredTemplate:
    """What to run; `ports` are (number, type) pairs and `image_auth_id` names a registry auth."""

    id: str
    name: str
    image: str
    readme: str = ""
    channel: str = "official"
    kind: str = "instance"
    image_auth_id: str = ""
    start_command: str = ""
    entrypoint: str = ""
    disk_gb: int = FREE_DISK_GB
    ports: tuple[tuple[int, str], ...] = ()
    envs: tuple[tuple[str, str], ...] = ()
    tools: tuple[tuple[str, int, str], ...] = ()
    min_cuda_version: str = ""
    created_at: int = 1_757_000_000


@dataclass(frozen=True, slots=True)
class CloudCatalogue:
    """Everything on sale, and the initial resources of the account."""

    clusters: tuple[Cluster, ...]
    products: tuple[Product, ...]
    cpu_products: tuple[CpuProduct, ...]
    templates: tuple[StoredTemplate, ...] = ()
    registry_auths: tuple[RegistryAuth, ...] = ()
    # Images with this prefix need the registry auth of that id.
    private_images: tuple[tuple[str, str], ...] = ()

    def cluster(self, cluster_id: str) -> Cluster | None:
        return next((cluster for cluster in self.clusters if cluster.id == cluster_id), None)

    def product(self, product_id: str) -> Product | None:
        return next((product for product in self.products if product.id == product_id), None)

    def cpu_product(self, product_id: str) -> CpuProduct | None:
        return next((product for product in self.cpu_products if product.id == product_id), None)

    def regions_of(self, product: Product) -> list[str]:
        sold_in = [cluster.label for cluster in self.clusters if cluster.id in product.cluster_ids]
        return [*sold_in, *product.retired_labels]


def _usd(amount: str) -> int:
    return int(Decimal(amount) * PRICE_UNITS_PER_USD)


def _gpu(product_id: str, name: str, cpu: int, memory: int, usd: str, spot_usd: str, where: str) -> Product:
    return Product(product_id, name, cpu, memory, _usd(usd), _usd(spot_usd), tuple(where.split()))


CLUSTERS = (
    Cluster("us-ca-6", "US-CA-06 (California)"),
    Cluster("us-ca-1", "US-CA-01 (California)", instance_network=False),
    Cluster("us-ca-3", "US-CA-03 (California)"),
    Cluster("as-sgp-2", "AS-SGP-02 (Singapore)"),
    # The code in the label does not follow from the id: clients must look it up.
    Cluster("cn-hongkong-1", "CN-HK-01 (Hong Kong)"),
    Cluster("as-in-1", "AS-IN-01 (India)", network_storage=False),
    Cluster("oc-au-1", "OC-AU-01 (Australia)"),
    Cluster("eu-gb-1", "EU-GB-01 (United Kingdom)"),
    Cluster("eu-de-1", "EU-DE-01 (Germany)"),
)


PRODUCTS = (
    _gpu("4090.16c62g", "RTX 4090 24GB", 16, 62, "0.35", "0.175", "us-ca-6 eu-gb-1 as-sgp-2"),
    _gpu("4090.16c62g.os", "RTX 4090 24GB", 16, 62, "0.34", "0.17", "us-ca-6 as-sgp-2"),
    _gpu("4090.16c96g.v2", "RTX 4090 24GB", 16, 96, "0.39", "0.20", "cn-hongkong-1 as-in-1"),
    _gpu("4090.16c125g", "RTX 4090 24GB", 16, 125, "0.35", "0.18", "us-ca-6 eu-de-1"),
    # An old id, always out of stock, in a region that is not listed.
    Product("26", "RTX 4090 24GB", 16, 62, _usd("0.67"), 0, (), ("US-01 (Dallas)",)),
    _gpu("3090.16c92g", "RTX 3090 24GB", 16, 92, "0.21", "0.11", "us-ca-6 as-in-1"),
    _gpu("5090.16c92g", "RTX 5090 32GB", 16, 92, "0.63", "0.32", "us-ca-6 as-sgp-2 oc-au-1"),
    _gpu("L40S.22c125g", "L40S 48GB", 22, 125, "0.55", "0.28", "us-ca-6 cn-hongkong-1"),
    _gpu("L40S.28c125g", "L40S 48GB", 28, 125, "0.58", "0.29", "as-sgp-2"),
    _gpu("6000Ada.16c62g", "RTX 6000 Ada 48GB", 16, 62, "0.70", "0.35", "us-ca-1 eu-gb-1"),
    _gpu("A100-80GB.14c240g", "A100 SXM 80GB", 14, 240, "1.60", "0.80", "us-ca-6 eu-de-1"),
    _gpu("H100-80GB.16c128g", "H100 SXM 80GB", 16, 128, "1.45", "0.73", "us-ca-6 as-sgp-2 eu-gb-1"),
    _gpu("H200-141GB.24c240g", "H200 SXM 141GB", 24, 240, "2.60", "1.30", "us-ca-3 as-sgp-2"),
    _gpu("B200-180GB.28c240g", "B200 180GB", 28, 240, "4.20", "0", "us-ca-3"),
)


CPU_PRODUCTS = (
    CpuProduct("cpu.4c8g", "CPU 4C8G", 4, 8, _usd("0.05"), ("us-ca-6", "as-sgp-2")),
    CpuProduct("cpu.16c64g", "CPU 16C64G", 16, 64, _usd("0.24"), ("us-ca-6", "eu-de-1")),
)


TEAM_REGISTRY = RegistryAuth(
    id="r3g1stry0auth0of0the0demo0team00",
    name="registry.example.com",
    username="demo-robot",
    password="demo-registry-password",  # noqa: S106 - the registry is as invented as the cloud
)


TEMPLATES = (
    StoredTemplate(
        id="101",
        name="PyTorch 2.6 with Jupyter",
        image="docker.io/pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel",
        readme="PyTorch and a notebook on port 8888.",
        start_command="jupyter lab --ip=0.0.0.0 --port=8888 --allow-root",
        ports=((8888, "http"), (22, "tcp")),
        tools=(("Jupyter", 8888, "http"),),
        min_cuda_version="12.4",
    ),
    StoredTemplate(
        id="102",
        name="vLLM server",
        image="docker.io/vllm/vllm-openai:v0.8.4",
        readme="An OpenAI-compatible server on port 8000.",
        start_command="--model Qwen/Qwen2.5-7B-Instruct --port 8000",
        disk_gb=100,
        ports=((8000, "http"),),
        envs=(("HF_HOME", "/workspace/huggingface"),),
        min_cuda_version="12.4",
    ),
    StoredTemplate(
        id="103",
        name="Ubuntu 22.04 with SSH",
        image="docker.io/library/ubuntu:22.04",
        readme="A bare Ubuntu.",
        start_command="sleep infinity",
        ports=((22, "tcp"),),
    ),
    StoredTemplate(
        id="104",
        name="ComfyUI",
        image="docker.io/yanwk/comfyui-boot:cu124-slim",
        readme="Node-based image generation on port 8188.",
        disk_gb=120,
        ports=((8188, "http"), (22, "tcp")),
        envs=(("CLI_ARGS", "--listen 0.0.0.0"),),
    ),
    StoredTemplate(
        id="105",
        name="Team trainer (private image)",
        image="registry.example.com/team/trainer:1.4",
        readme="Needs the registry auth it names.",
        channel="private",
        image_auth_id=TEAM_REGISTRY.id,
        start_command="python -m trainer",
        ports=((6006, "http"),),
        envs=(("WANDB_MODE", "offline"),),
    ),
    StoredTemplate(
        id="106",
        name="Half-finished (names no image)",
        image="",
        readme="Somebody saved it too early: nothing can be started from it.",
        channel="private",
    ),
)


def default_catalogue() -> CloudCatalogue:
    """Return the cloud of the demo and most tests."""
    return CloudCatalogue(
        clusters=CLUSTERS,
        products=PRODUCTS,
        cpu_products=CPU_PRODUCTS,
        templates=TEMPLATES,
        registry_auths=(TEAM_REGISTRY,),
        private_images=(("registry.example.com/team/", TEAM_REGISTRY.id),),
    )


@dataclass(frozen=True, slots=True)
class ProductOnSale:
    """A product with its free units, in the requested cluster or in all."""

    product: Product
    units: int
    can_deploy: bool
