"""Novita's JSON, written from its documents: 64-bit numbers as strings, empty fields sent all the same."""

from __future__ import annotations

from typing import NamedTuple

from gpuherd.simulator.market import inventory_state
from gpuherd.simulator.simulated_account import AccountJob, NetworkVolume, PrewarmTask
from gpuherd.simulator.simulated_bill import VOLUME_USD_PER_GB_DAY
from gpuherd.simulator.simulated_catalogue import (
    DISK_GB_MAX,
    DISK_GB_MIN,
    FREE_DISK_GB,
    PRICE_UNITS_PER_USD,
    CloudCatalogue,
    Cluster,
    CpuProduct,
    ProductOnSale,
    RegistryAuth,
    StoredTemplate,
)
from gpuherd.simulator.simulated_machine import Addresses, SimulatedMachine, Snapshot
from gpuherd.simulator.simulated_request import SimulatedError

Json = dict[str, object]
OWNER = "simulated-account"
MONTH_S = 30 * 86_400


def error_shape(error: SimulatedError) -> Json:
    return {"code": error.status, "reason": error.reason, "message": error.message, "metadata": {}}


def cluster_shape(cluster: Cluster, gpu_names: list[str]) -> Json:
    return {
        "id": cluster.id,
        "name": cluster.label,
        "availableGpuType": gpu_names,
        "supportNetworkStorage": cluster.network_storage,
        "supportInstanceNetwork": cluster.instance_network,
    }


def product_shape(on_sale: ProductOnSale, catalogue: CloudCatalogue) -> Json:
    product = on_sale.product
    return {
        "id": product.id,
        "name": product.name,
        "cpuPerGpu": product.cpu_per_gpu,
        "memoryPerGpu": product.memory_gb_per_gpu,
        "diskPerGpu": DISK_GB_MAX,
        "availableDeploy": on_sale.can_deploy,
        "minRootFS": DISK_GB_MIN,
        "maxRootFS": DISK_GB_MAX,
        "minLocalStorage": 0,
        "maxLocalStorage": 0,
        "regions": catalogue.regions_of(product),
        "price": str(product.price),
        "spotPrice": str(product.spot_price),
        "monthlyPrice": [{"price": str(price), "month": month} for month, price in product.monthly_prices],
        "billingMethods": list(product.billing_methods),
        "inventoryState": inventory_state(on_sale.units),
        "canBuy": on_sale.can_deploy,
        "prices": [],
    }


def cpu_product_shape(product: CpuProduct) -> Json:
    return {
        "id": product.id,
        "name": product.name,
        "cpuNum": product.cpu_num,
        "memorySize": product.memory_gb,
        "rootfsSize": FREE_DISK_GB,
        "localVolumeSize": 0,
        "availableDeploy": True,
        "price": str(product.price),
    }


def instance_shape(
    snapshot: Snapshot, catalogue: CloudCatalogue, addresses: Addresses, *, with_secrets: bool
) -> Json:
    """Return an instance; only a GET contains the passwords."""
    machine, now, request = snapshot.machine, snapshot.at, snapshot.machine.request
    cluster = catalogue.cluster(machine.cluster_id)
    state, message = machine.error(now)
    return {
        "id": machine.id,
        "name": machine.name,
        "clusterId": machine.cluster_id,
        "clusterName": cluster.label if cluster else "",
        "status": snapshot.status,
        "statusError": {"state": state, "message": message},
        "imageUrl": request.image_url,
        "imageAuthId": request.image_auth_id,
        "command": request.command,
        "entrypoint": request.entrypoint,
        "cpuNum": str(machine.cpu_num),
        "memory": str(machine.memory_gb),
        "gpuNum": str(request.gpu_num),
        "productId": request.product_id,
        "productName": machine.product_name,
        "rootfsSize": request.disk_gb,
        "portMappings": _port_mappings(machine, addresses),
        "volumeMounts": [
            {"type": "network", "size": "0", "id": storage.id, "mountPath": storage.mount_point}
            for storage in request.network_storages
        ],
        "envs": [{"key": key, "value": value} for key, value in request.envs],
        "kind": request.kind,
        "billingMode": request.billing_mode,
        "endTime": str(int(machine.created_at) + request.months * MONTH_S) if request.months else "-1",
        "spotStatus": machine.spot_status(now),
        "spotReclaimTime": str(machine.spot_reclaim_time(now)),
        "createdAt": str(int(machine.created_at)),
        "lastStartedAt": _stamp(machine.last("running", now)),
        "lastStoppedAt": _stamp(machine.last("exited", now)),
        "gpuIds": machine.gpu_ids,
        "templateId": "",
        "network": {"id": "", "ip": ""},
        **_connections(snapshot, addresses, with_secrets=with_secrets),
        "freeStorageSize": FREE_DISK_GB,
        "keepDataDay": 7,
        "instancePrice": str(machine.price * max(1, request.gpu_num)),
        "jobs": [],
    }


def template_shape(template: StoredTemplate) -> Json:
    by_protocol: dict[str, list[int]] = {}
    for number, protocol in template.ports:
        by_protocol.setdefault(protocol, []).append(number)
    return {
        "Id": template.id,
        "user": OWNER,
        "name": template.name,
        "readme": template.readme,
        "type": template.kind,
        "channel": template.channel,
        "image": template.image,
        "imageAuth": template.image_auth_id,
        "startCommand": template.start_command,
        "entrypoint": template.entrypoint,
        "rootfsSize": template.disk_gb,
        "volumes": [],
        "ports": [{"type": protocol, "ports": numbers} for protocol, numbers in by_protocol.items()],
        "envs": [{"key": key, "value": value} for key, value in template.envs],
        "tools": [
            {"name": name, "describe": "", "port": port, "type": protocol}
            for name, port, protocol in template.tools
        ],
        "createdAt": str(template.created_at),
        "recommendCards": [],
        "minCudaVersion": template.min_cuda_version,
    }


def registry_auth_shape(auth: RegistryAuth) -> Json:
    # In clear text, like Novita: the holder of the API key may see these.
    return {"id": auth.id, "name": auth.name, "username": auth.username, "password": auth.password}


def job_shape(job: AccountJob, now: float) -> Json:
    return {
        "Id": job.id,
        "user": OWNER,
        "type": job.kind,
        "envs": [],
        "state": {"state": job.state(now), "error": "", "errorMessage": ""},
        "logAddress": "",
        "createdAt": str(int(job.created_at)),
        "instanceId": job.machine_id,
    }


def _port_mappings(machine: SimulatedMachine, addresses: Addresses) -> list[Json]:
    tools = [(tool.port, tool.protocol) for tool in machine.request.tools]
    exposed = dict([*tools, *machine.request.ports])
    return [
        {"port": port, "endpoint": _endpoint(machine, port, protocol, addresses), "type": protocol}
        for port, protocol in exposed.items()
    ]


def _endpoint(machine: SimulatedMachine, port: int, protocol: str, addresses: Addresses) -> str:
    if protocol == "http":
        return addresses.http(machine.id, machine.cluster_id, port)
    return addresses.tcp(machine.cluster_id, machine.proxy_ports[port])


def _connections(snapshot: Snapshot, addresses: Addresses, *, with_secrets: bool) -> Json:
    machine = snapshot.machine
    running = snapshot.status == "running"
    password = machine.ssh_password if with_secrets and running else ""
    jupyter = next((tool for tool in machine.request.tools if tool.name.casefold() == "jupyter"), None)
    ssh = addresses.ssh(machine.cluster_id, machine.proxy_ports[22]) if running else ""
    terminal = addresses.http(machine.id, machine.cluster_id, 2223) if running else ""
    notebook = addresses.http(machine.id, machine.cluster_id, jupyter.port) if running and jupyter else ""
    logs = log_addresses(snapshot, addresses)
    return {
        "connectComponentSSH": {"sshCommand": ssh, "password": password, "isRunning": running},
        "connectComponentWebTerminal": {
            "address": terminal,
            "username": "root" if running else "",
            "password": password,
            "isRunning": running,
        },
        "connectComponentJupyter": {
            "port": str(jupyter.port) if jupyter else "",
            "address": notebook,
            "isRunning": bool(notebook),
        },
        "connectComponentLog": {
            "systemLogAddress": logs.system,
            "instanceLogAddress": logs.instance,
            "isRunning": running,
        },
    }


def _stamp(at: float | None) -> str:
    return "0" if at is None else str(int(at))


def volume_shape(volume: NetworkVolume, catalogue: CloudCatalogue) -> Json:
    cluster = catalogue.cluster(volume.cluster_id)
    return {
        "storageId": volume.id,
        "storageName": volume.name,
        "storageSize": volume.size_gb,
        "clusterId": volume.cluster_id,
        "clusterName": cluster.label if cluster else "",
        # Per GB and day.
        "price": str(int(VOLUME_USD_PER_GB_DAY * PRICE_UNITS_PER_USD)),
    }


def prewarm_shape(task: PrewarmTask, now: float, catalogue: CloudCatalogue) -> Json:
    cluster = catalogue.cluster(task.cluster_id)
    products = [(each, catalogue.product(each)) for each in task.product_ids]
    done_at = task.done_at if task.is_done(now) else None
    return {
        "id": task.id,
        "imageName": task.image_name,
        "imageUrl": task.image_url,
        "repositoryAuth": task.auth_id,
        "clusterId": task.cluster_id,
        "clusterName": cluster.label if cluster else "",
        "products": [
            {"productId": product_id, "productName": product.name if product else ""}
            for product_id, product in products
        ],
        # In bytes; unknown until the image is there.
        "imageSize": str(task.size_bytes) if done_at is not None and not task.failure else "0",
        "createTime": str(int(task.created_at)),
        "state": task.state(now),
        "completeTime": "0" if done_at is None else str(int(done_at)),
        "note": task.note,
        "reason": task.reasons(now),
    }


LOG_PORT = 2224


class ServedLogs(NamedTuple):
    """Where the logs of a machine are served; empty if there is none."""

    system: str
    instance: str


def log_addresses(snapshot: Snapshot, addresses: Addresses) -> ServedLogs:
    """Return the addresses as they are shown beside a machine."""
    is_running = snapshot.status == "running"
    # The cloud's log is readable as soon as the pull begins.
    if not is_running and snapshot.status not in ("creating", "pulling"):
        return ServedLogs("", "")
    root = addresses.http(snapshot.machine.id, snapshot.machine.cluster_id, LOG_PORT)
    return ServedLogs(f"{root}/system", f"{root}/instance" if is_running else "")
