"""The simulated cloud in our own domain types: regions, offers, templates, machines and errors.

Written beside Novita's shapes and not through them: port and HTTP API must agree because both are right, not
because they share a mistake."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

from gpuherd.domain import errors
from gpuherd.domain.cloud import offer
from gpuherd.domain.cloud import template as template_cloud
from gpuherd.domain.cloud.machine import ConnectionDetails, LogAddresses, Machine, Phase, PortMapping
from gpuherd.domain.cloud.template import Prewarm, PrewarmProduct, PrewarmState, TemplateDraft
from gpuherd.domain.instance.idleness import Utilization
from gpuherd.domain.money.bill import BillCategory, ProviderCharge, StorageVolume
from gpuherd.resilience.retry import parse_retry_after
from gpuherd.simulator.catalogue import (
    DISK_GB_MAX,
    DISK_GB_MIN,
    PRICE_UNITS_PER_USD,
    CloudCatalogue,
    Cluster,
    Product,
    StoredTemplate,
)
from gpuherd.simulator.create_request import CreateRequest, read_create_request
from gpuherd.simulator.errors import SimulatedError
from gpuherd.simulator.money import bill, use, volumes
from gpuherd.simulator.money.charge import GPU
from gpuherd.simulator.money.tariff import VOLUME_USD_PER_GB_DAY
from gpuherd.simulator.views import logs
from gpuherd.simulator.views.listing import Snapshot
from gpuherd.simulator.views.product_list import ProductOnSale
from gpuherd.simulator.world import prewarms
from gpuherd.simulator.world.addresses import Addresses
from gpuherd.simulator.world.placement import SSH_PORT
from gpuherd.simulator.world.stock import inventory_state

TAG_VARIABLE = "GPUHERD_TAG"
VARIABLES_MAX = 100
TERMINAL_PORT = 2223

_STATUSES = {
    Phase.CREATING: ("pending", "toCreate", "creating"),
    Phase.PULLING: ("pulling",),
    Phase.STARTING: ("toStart", "starting", "toRestart", "restarting", "toReset", "resetting"),
    Phase.RUNNING: ("running",),
    Phase.STOPPING: ("toStop", "stopping"),
    Phase.STOPPED: ("exited",),
    Phase.MIGRATING: ("migrating",),
    Phase.FROZEN: ("freezing",),
    Phase.REMOVING: ("toRemove", "removing"),
    Phase.ABSENT: ("removed",),
}
_PHASE_OF = {status: phase for phase, statuses in _STATUSES.items() for status in statuses}

_CLEAR_NO = frozenset({400, 401, 402, 403, 404, 409, 422})
_NO_STOCK = frozenset({"INSUFFICIENT_RESOURCE", "CREATE_GPU_NUM_LIMIT", "CLUSTER_STATUS", "NODE_STATUS"})
_NO_MONEY = frozenset({"BALANCE_NOT_ENOUGH", "EXPIRED_OR_BALANCE_NOT_ENOUGH"})


def region(cluster: Cluster, gpu_names: list[str]) -> offer.Region:
    return offer.Region(_code(cluster), cluster.label, cluster.id, tuple(gpu_names))


def offers(on_sale: ProductOnSale, catalogue: CloudCatalogue) -> Iterator[offer.Offer]:
    """Yield the product once for each cluster that sells it."""
    product = on_sale.product
    for cluster in catalogue.clusters:
        if _is_sold_in(product, cluster):
            yield offer.Offer(
                product_id=product.id,
                product_name=product.name,
                region=_code(cluster),
                cluster_id=cluster.id,
                available=on_sale.can_deploy,
                stock=inventory_state(on_sale.units),
                spot_usd=_usd(product.spot_price),
                on_demand_usd=_usd(product.price),
                cpu_per_gpu=product.cpu_per_gpu,
                memory_gb_per_gpu=product.memory_gb_per_gpu,
                disk_gb_min=DISK_GB_MIN,
                disk_gb_max=DISK_GB_MAX,
            )


def template(stored: StoredTemplate) -> template_cloud.Template:
    return template_cloud.Template(
        template_id=stored.id,
        name=stored.name,
        image=stored.image,
        registry_auth_id=stored.image_auth_id,
        command=stored.start_command,
        entrypoint=stored.entrypoint,
        ports=stored.ports,
        envs=stored.envs,
        channel=stored.channel,
        min_cuda_version=stored.min_cuda_version,
    )


def machine(snapshot: Snapshot, catalogue: CloudCatalogue, addresses: Addresses) -> Machine:
    """Return the machine as it was shown, without its passwords."""
    stored, at, request = snapshot.machine, snapshot.at, snapshot.machine.request
    cluster = catalogue.cluster(stored.cluster_id)
    return Machine(
        cloud_id=stored.id,
        name=stored.name,
        phase=_PHASE_OF.get(snapshot.status, Phase.UNKNOWN),
        raw_status=snapshot.status,
        error=stored.error(at)[1],
        cluster_id=stored.cluster_id,
        region=_code(cluster) if cluster else "",
        product_id=request.product_id,
        product_name=stored.product_name,
        gpu_num=request.gpu_num,
        disk_gb=request.disk_gb,
        image_url=request.image_url,
        billing_mode=request.billing_mode,
        spot_status=stored.spot_status(at),
        spot_reclaim_at=_moment(stored.spot_reclaim_time(at)),
        created_at=_moment(int(stored.created_at)),
        env_tag=dict(request.envs).get(TAG_VARIABLE, ""),
        ports=tuple(_ports(snapshot, addresses)),
        connection=_connection(snapshot, addresses),
        hourly_usd=_usd(stored.price * max(1, request.gpu_num)),
    )


def log_addresses(snapshot: Snapshot, addresses: Addresses) -> LogAddresses:
    shown = logs.log_addresses(snapshot, addresses)
    return LogAddresses(_PHASE_OF.get(snapshot.status, Phase.UNKNOWN), shown.instance, shown.system)


def provider_charge(row: bill.BillRow) -> ProviderCharge:
    is_gpu = row.kind == GPU
    unit = row.usd_per_unit_hour * (1 if is_gpu else 24)
    return ProviderCharge(
        owner_id=row.owner_id,
        category=BillCategory.GPU if is_gpu else BillCategory.STORAGE,
        begin=datetime.fromtimestamp(row.span.begin, UTC),
        quantity=round(row.quantity),
        unit_usd=Decimal(unit.numerator) / unit.denominator,
        amount_usd=Decimal(bill.exact(row.usd)),
        voucher_usd=Decimal(0),
    )


def use_sample(measured: use.UseSample, gpu_num: int) -> Utilization:
    return Utilization(datetime.fromtimestamp(measured.at, UTC), (measured.gpu,) * gpu_num, measured.cpu)


def volume(stored: volumes.NetworkVolume, catalogue: CloudCatalogue) -> StorageVolume:
    cluster = catalogue.cluster(stored.cluster_id)
    price = VOLUME_USD_PER_GB_DAY
    return StorageVolume(
        volume_id=stored.id,
        name=stored.name,
        region=_code(cluster) if cluster else stored.cluster_id,
        size_gb=stored.size_gb,
        usd_per_gb_day=Decimal(price.numerator) / price.denominator,
    )


def prewarm(task: prewarms.PrewarmTask, now: float, catalogue: CloudCatalogue) -> Prewarm:
    cluster, done = catalogue.cluster(task.cluster_id), task.is_done(now)
    state = PrewarmState(task.state(now).lower())
    sold = {product.id: product.name for product in catalogue.products}
    return Prewarm(
        prewarm_id=task.id,
        image=task.image_url,
        region=_code(cluster) if cluster else task.cluster_id,
        cluster_id=task.cluster_id,
        state=state,
        registry_auth_id=task.auth_id,
        products=tuple(PrewarmProduct(each, sold.get(each, "")) for each in task.product_ids),
        size_bytes=task.size_bytes if state is PrewarmState.SUCCEEDED else None,
        note=task.note,
        reasons=tuple(task.reasons(now)) if state is PrewarmState.FAILED else (),
        created_at=_moment(int(task.created_at)),
        completed_at=_moment(int(task.done_at or 0)) if done else None,
    )


def create_request(order: template_cloud.CreateCall) -> CreateRequest:
    """Turn an order into the cloud's own kind of request; raises `SimulatedError` as the cloud would."""
    wanted = order.template
    variables = [(key, value) for key, value in wanted.envs if key != TAG_VARIABLE]
    if len(variables) < VARIABLES_MAX:
        variables.append((TAG_VARIABLE, order.tag))
    return read_create_request(
        {
            "name": order.name,
            "productId": order.offer.product_id,
            "clusterId": order.offer.cluster_id,
            "gpuNum": order.gpu_num,
            "rootfsSize": order.disk_gb,
            "billingMode": order.billing_mode.value,
            "imageUrl": wanted.image,
            "imageAuthId": wanted.registry_auth_id,
            "ports": ",".join(f"{number}/{protocol}" for number, protocol in wanted.ports),
            "envs": [{"key": key, "value": value} for key, value in variables],
            "command": wanted.command,
            "entrypoint": wanted.entrypoint,
            "minCudaVersion": wanted.min_cuda_version,
            "networkStorages": [{"Id": it.volume_id, "mountPoint": it.mount_path} for it in order.volumes],
        }
    )


def template_fields(draft: TemplateDraft) -> dict[str, object]:
    """Turn what a draft says into the cloud's own words."""
    ports = [{"type": protocol, "ports": [number]} for number, protocol in draft.ports or ()]
    envs = [{"key": key, "value": value} for key, value in draft.envs or ()]
    words: dict[str, object] = {
        "name": draft.name,
        "image": draft.image,
        "imageAuth": draft.registry_auth_id,
        "startCommand": draft.command,
        "entrypoint": draft.entrypoint,
        "rootfsSize": draft.disk_gb,
        "minCudaVersion": draft.min_cuda_version,
        "ports": None if draft.ports is None else ports,
        "envs": None if draft.envs is None else envs,
    }
    return {key: value for key, value in words.items() if value is not None}


def failed_read(error: SimulatedError, now: datetime) -> errors.GpuherdError:
    """Say what an error reply to a question means."""
    if error.status == 429:
        return _throttled(error, now)
    # A page of some gateway says nothing, except that a key which is not accepted is not accepted.
    is_no = 400 <= error.status < 500 and error.status != 408 and not error.from_gateway
    if is_no or error.status == 401:
        return _refusal(error)
    kind = errors.CloudTimeout if error.status in (408, 504) else errors.CloudUnavailable
    return kind(str(error), retry_after_s=_retry_after_s(error, now))


def failed_change(error: SimulatedError, now: datetime) -> errors.GpuherdError:
    """Say what an error reply to a command means: only a clear no means that nothing happened."""
    if error.status == 429:
        return _throttled(error, now)
    if error.status in _CLEAR_NO and not error.from_gateway:
        return _refusal(error)
    return errors.OutcomeUnknown(str(error), details={"status": error.status})


def failed_volume_change(error: SimulatedError, now: datetime) -> errors.GpuherdError:
    """Say the same of a command that is about a volume."""
    match error.reason if error.status in _CLEAR_NO and not error.from_gateway else "":
        case "NETWORK_STORAGE_NOT_FOUND":
            return errors.NotFound(str(error), code="VOLUME_NOT_FOUND")
        case "NETWORK_STORAGE_IN_USE":
            return errors.Conflict(str(error), code="VOLUME_IN_USE")
        case "CUR_CLUSTER_NETWORK_STORAGE_NOT_SUPPORT":
            return errors.Conflict(str(error), code="VOLUMES_NOT_SUPPORTED")
    return failed_change(error, now)


def failed_image_change(error: SimulatedError, now: datetime) -> errors.GpuherdError:
    """Say the same of a command that is about a registry credential or a template."""
    match error.reason if error.status in _CLEAR_NO and not error.from_gateway else "":
        case "TEMPLATE_NOT_FOUND" | "TEMPLATE_IS_PRIVATE":
            return errors.NotFound(str(error), code="TEMPLATE_NOT_FOUND")
        case "RESOURCE_NOT_FOUND":
            return errors.NotFound(str(error), code="REGISTRY_AUTH_NOT_FOUND")
        case "IMAGE_AUTH_IN_USE":
            return errors.Conflict(str(error), code="REGISTRY_AUTH_IN_USE")
    return failed_change(error, now)


def _refusal(error: SimulatedError) -> errors.GpuherdError:
    said = str(error)
    if error.reason == "RATE_LIMIT_EXCEEDED":
        return errors.RateLimited(said)
    if error.reason in _NO_STOCK:
        return errors.OutOfStock(said)
    if error.reason in _NO_MONEY or error.status == 402:
        return errors.CloudRefused(said, code="INSUFFICIENT_BALANCE")
    if error.reason == "CREATE_INSTANCE_LIMIT":
        return errors.CloudRefused(said, code="QUOTA_EXCEEDED")
    if error.reason in ("UNAUTHORIZED", "FORBIDDEN") or error.status in (401, 403):
        return errors.KeyRefused(said)
    if "invalid state change" in error.message:
        return errors.CloudRefused(said, code="INVALID_STATE_CHANGE")
    return errors.CloudRefused(said)


def is_missing(error: SimulatedError) -> bool:
    """Tell whether the cloud says that there is no such machine, or no such template."""
    reasons = ("RESOURCE_NOT_FOUND", "TEMPLATE_NOT_FOUND", "TEMPLATE_IS_PRIVATE")
    said_so = error.status == 404 or (error.status == 400 and error.reason in reasons)
    return said_so and not error.from_gateway


def _throttled(error: SimulatedError, now: datetime) -> errors.RateLimited:
    return errors.RateLimited(str(error), retry_after_s=_retry_after_s(error, now))


def _retry_after_s(error: SimulatedError, now: datetime) -> float | None:
    return parse_retry_after(error.headers.get("Retry-After"), now)


def _code(cluster: Cluster) -> str:
    return cluster.label.split(" ", 1)[0]


def _is_sold_in(product: Product, cluster: Cluster) -> bool:
    everywhere = not product.cluster_ids and not product.retired_labels
    return everywhere or cluster.id in product.cluster_ids


def _usd(units: int) -> Decimal | None:
    return Decimal(units) / PRICE_UNITS_PER_USD if units else None


def _moment(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def _ports(snapshot: Snapshot, addresses: Addresses) -> Iterator[PortMapping]:
    stored = snapshot.machine
    tools = [(tool.port, tool.protocol) for tool in stored.request.tools]
    for port, protocol in dict([*tools, *stored.request.ports]).items():
        if protocol == "http":
            endpoint = addresses.http(stored.id, stored.cluster_id, port)
        else:
            endpoint = addresses.tcp(stored.cluster_id, stored.proxy_ports[port])
        yield PortMapping(port, endpoint, protocol)


def _connection(snapshot: Snapshot, addresses: Addresses) -> ConnectionDetails:
    stored = snapshot.machine
    if snapshot.status != "running":
        return ConnectionDetails()
    notebook = next((tool.port for tool in stored.request.tools if tool.name.casefold() == "jupyter"), None)
    return ConnectionDetails(
        ssh=addresses.ssh(stored.cluster_id, stored.proxy_ports[SSH_PORT]),
        jupyter=addresses.http(stored.id, stored.cluster_id, notebook) if notebook else "",
        web_terminal=addresses.http(stored.id, stored.cluster_id, TERMINAL_PORT),
    )
