"""Novita's JSON: what gpuherd sends and reads."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gpuherd.adapters.novita.redaction import NO_SECRETS, CallSecrets
from gpuherd.domain.cloud.machine import (
    ConnectionDetails,
    LogAddresses,
    Machine,
    Phase,
    PortMapping,
)
from gpuherd.domain.cloud.offer import BillingMode, Offer, Region
from gpuherd.domain.cloud.template import CreateCall, Template
from gpuherd.domain.instance.launch_spec import ENVS_MAX, TAG_VARIABLE
from gpuherd.domain.secret import Secret

TEXT_CHARS = 2048
PRICE_UNITS_PER_USD = 100_000
_WHOLE = re.compile(r"-?\d{1,18}(?:\.0{1,6})?", re.ASCII)
_YEAR_10000_S = 253_402_300_800


# Control characters break terminals and logs; lone surrogates break every database.
_UNSAFE = frozenset({"Cc", "Cs"})


def safe_text(value: str, chars: int = TEXT_CHARS) -> str:
    """Return text that is safe to show and store, on one line."""
    if len(value) > chars:
        value = value[:chars]
    if value.isprintable():
        return value
    return "".join(" " if unicodedata.category(c) in _UNSAFE else c for c in value).strip()


def text(row: dict[str, Any], key: str) -> str:
    """Return a string field; the digits of a number; empty for anything else."""
    value = row.get(key)
    if isinstance(value, str):
        return safe_text(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def shared_text(row: dict[str, Any], key: str) -> str:
    """Return the same as an interned string: many rows repeat it."""
    return sys.intern(text(row, key))


def program_text(row: dict[str, Any], key: str) -> str:
    """Return text for a machine: complete, with line breaks, without characters that processes reject."""
    value = row.get(key)
    if not isinstance(value, str):
        return ""
    return value.replace("\0", "").encode("utf-8", "ignore").decode("utf-8")


def whole(row: dict[str, Any], key: str) -> int | None:
    """Return a whole number, written as a number or as a string."""
    value = row.get(key)
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if abs(value) < 10**18 else None
    if isinstance(value, float):
        value = str(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0])
    return None


def usd(row: dict[str, Any], key: str) -> Decimal | None:
    """Return a price in USD; None if it is not sold that way."""
    units = whole(row, key)
    return Decimal(units) / PRICE_UNITS_PER_USD if units is not None and units > 0 else None


def moment(row: dict[str, Any], key: str) -> datetime | None:
    """Return a time given in Unix seconds; None for 0, -1 and invalid values."""
    seconds = whole(row, key)
    if seconds is None or not 0 < seconds < _YEAR_10000_S:
        return None
    return datetime.fromtimestamp(seconds, UTC)


def part(row: dict[str, Any], key: str) -> dict[str, Any]:
    """Return an object inside the row; empty if there is none."""
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def parts(row: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list inside the row; skip everything else."""
    value = row.get(key)
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def texts(row: dict[str, Any], key: str) -> tuple[str, ...]:
    """Return the strings of a list inside the row."""
    value = row.get(key)
    if not isinstance(value, list):
        return ()
    return tuple(safe_text(item) for item in value if isinstance(item, str))


ERROR_CHARS = 300
ID_CHARS = 255


PHASES = {
    "pending": Phase.CREATING,
    "toCreate": Phase.CREATING,
    "creating": Phase.CREATING,
    "pulling": Phase.PULLING,
    "toStart": Phase.STARTING,
    "starting": Phase.STARTING,
    "toRestart": Phase.STARTING,
    "restarting": Phase.STARTING,
    # After the image is replaced, the machine starts.
    "toReset": Phase.STARTING,
    "resetting": Phase.STARTING,
    "running": Phase.RUNNING,
    "toStop": Phase.STOPPING,
    "stopping": Phase.STOPPING,
    "exited": Phase.STOPPED,
    "migrating": Phase.MIGRATING,
    "freezing": Phase.FROZEN,
    "toRemove": Phase.REMOVING,
    "removing": Phase.REMOVING,
    # Still listed for a moment, but gone.
    "removed": Phase.ABSENT,
}


def rows(body: dict[str, Any], key: str) -> list[Any] | None:
    """Return the list of a reply; None if there is none."""
    value = body.get(key, "missing")
    # Go writes an empty list as null.
    if value is None:
        return []
    return value if isinstance(value, list) else None


def region_code(label: str) -> str:
    """Return `US-CA-06` for `US-CA-06 (California)`: the part that labels of clusters and products share."""
    return sys.intern(label.strip().partition(" ")[0])


def read_regions(cluster_rows: Iterable[Any]) -> tuple[Region, ...]:
    """Return the clusters that have an id."""
    found = []
    for row in cluster_rows:
        if isinstance(row, dict) and (cluster_id := text(row, "id")):
            label = text(row, "name") or cluster_id
            found.append(Region(region_code(label), label, cluster_id, texts(row, "availableGpuType")))
    return tuple(found)


def read_offers(product_rows: Iterable[Any], regions: tuple[Region, ...]) -> tuple[Offer, ...]:
    """Return each product in each region where it is sold."""
    by_code = {region.code: region for region in regions}
    return tuple(
        offer
        for row in product_rows
        if isinstance(row, dict) and text(row, "id")
        for offer in _offers_of(row, by_code)
    )


def _offers_of(row: dict[str, Any], by_code: dict[str, Region]) -> Iterator[Offer]:
    sold_as = texts(row, "billingMethods")
    stock = text(row, "inventoryState")
    for region in _regions_of(row, by_code):
        yield Offer(
            product_id=text(row, "id"),
            product_name=text(row, "name"),
            region=region.code,
            cluster_id=region.cluster_id,
            # Only an explicit False counts. The create call shows the real stock.
            available=row.get("availableDeploy") is not False
            and row.get("canBuy") is not False
            and stock != "none",
            stock=stock,
            spot_usd=usd(row, "spotPrice") if not sold_as or BillingMode.SPOT in sold_as else None,
            on_demand_usd=usd(row, "price") if not sold_as or BillingMode.ON_DEMAND in sold_as else None,
            cpu_per_gpu=whole(row, "cpuPerGpu") or 0,
            memory_gb_per_gpu=whole(row, "memoryPerGpu") or 0,
            disk_gb_min=whole(row, "minRootFS") or 0,
            disk_gb_max=whole(row, "maxRootFS") or 0,
        )


def _regions_of(row: dict[str, Any], by_code: dict[str, Region]) -> Iterable[Region]:
    labels = texts(row, "regions")
    if not labels:
        return by_code.values()
    codes = dict.fromkeys(region_code(label) for label in labels)
    # A label without a cluster is a closed region, where no order is possible.
    return [by_code[code] for code in codes if code in by_code]


def read_template(row: Any) -> Template | None:
    """Return a template; None if the row is invalid."""
    if not isinstance(row, dict) or not (template_id := text(row, "Id")):
        return None
    return Template(
        template_id=template_id,
        name=text(row, "name"),
        image=text(row, "image"),
        registry_auth_id=text(row, "imageAuth"),
        command=program_text(row, "startCommand"),
        entrypoint=program_text(row, "entrypoint"),
        ports=tuple(_template_ports(row)),
        envs=_envs(row),
        channel=text(row, "channel"),
        min_cuda_version=text(row, "minCudaVersion"),
    )


def _template_ports(row: dict[str, Any]) -> Iterator[tuple[int, str]]:
    for group in parts(row, "ports"):
        numbers = group.get("ports")
        for number in numbers if isinstance(numbers, list) else ():
            if (port := whole({"port": number}, "port")) is not None:
                yield port, text(group, "type")


def _envs(row: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    pairs = ((program_text(env, "key"), program_text(env, "value")) for env in parts(row, "envs"))
    return tuple((key, value) for key, value in pairs if key)


def read_machine(
    row: Any, secrets_with: Callable[[str], CallSecrets] = lambda _: NO_SECRETS
) -> Machine | None:
    """Return a machine; None if the row has no usable id.

    The cloud's error text is shown without the secrets of the pull with this registry credential
    (`secrets_with`), and without those of the row itself.
    """
    if not isinstance(row, dict) or not (cloud_id := read_id(row)):
        return None
    status = shared_text(row, "status")
    return Machine(
        cloud_id=cloud_id,
        name=text(row, "name"),
        phase=PHASES.get(status, Phase.UNKNOWN),
        raw_status=status,
        error=_status_error(row, secrets_with),
        cluster_id=shared_text(row, "clusterId"),
        region=region_code(text(row, "clusterName")),
        product_id=shared_text(row, "productId"),
        product_name=shared_text(row, "productName"),
        gpu_num=whole(row, "gpuNum") or 0,
        disk_gb=whole(row, "rootfsSize") or 0,
        image_url=shared_text(row, "imageUrl"),
        billing_mode=shared_text(row, "billingMode"),
        spot_status=shared_text(row, "spotStatus"),
        spot_reclaim_at=moment(row, "spotReclaimTime"),
        created_at=moment(row, "createdAt"),
        env_tag=next(
            (text(env, "value") for env in parts(row, "envs") if env.get("key") == TAG_VARIABLE), ""
        ),
        ports=tuple(_port_mappings(row)),
        hourly_usd=usd(row, "instancePrice"),
        # A password stands beside each of these. It is dropped here.
        connection=ConnectionDetails(
            ssh=text(part(row, "connectComponentSSH"), "sshCommand"),
            jupyter=text(part(row, "connectComponentJupyter"), "address"),
            web_terminal=text(part(row, "connectComponentWebTerminal"), "address"),
        ),
    )


def read_log_addresses(row: dict[str, Any]) -> LogAddresses:
    """Return where the logs of a machine are. Some accounts get them beside the SSH command."""
    named, beside_ssh = part(row, "connectComponentLog"), part(row, "connectComponentSSH")
    instance, system = (
        text(named, key) or text(beside_ssh, key) for key in ("instanceLogAddress", "systemLogAddress")
    )
    return LogAddresses(PHASES.get(text(row, "status"), Phase.UNKNOWN), instance, system)


def _status_error(row: dict[str, Any], secrets_with: Callable[[str], CallSecrets]) -> str:
    said = text(part(row, "statusError"), "message")
    if not said:
        return ""
    inner = (part(row, name) for name in row if name.startswith("connectComponent"))
    logins = tuple(
        Secret(value)
        for it in (row, *inner)
        for name, value in it.items()
        if isinstance(value, str) and "password" in name.casefold()
    )
    known = secrets_with(text(row, "imageAuthId")).plus(CallSecrets(logins))
    involved = known.with_envs(env for env in _envs(row) if env[0] != TAG_VARIABLE)
    return safe_text(involved.redact(said), ERROR_CHARS)


def _port_mappings(row: dict[str, Any]) -> Iterator[PortMapping]:
    for mapping in parts(row, "portMappings"):
        port = whole(mapping, "port")
        if port is not None and 0 < port <= 65535:
            yield PortMapping(port, text(mapping, "endpoint"), shared_text(mapping, "type"))


def read_id(row: dict[str, Any]) -> str:
    """Return the id of a machine; empty if there is none that can be sent back unchanged."""
    value = row.get("id")
    if not isinstance(value, str) or not 0 < len(value) <= ID_CHARS or not value.isprintable():
        return ""
    return value if value.strip() == value else ""


def read_registry_passwords(auth_rows: Iterable[Any]) -> dict[str, Secret | None]:
    """Return the passwords of registry credentials by id; None if Novita does not report one.

    Novita sends them in clear text. They are used only to redact them where an error quotes them.
    """
    rows_by_id = {text(row, "id"): row for row in auth_rows if isinstance(row, dict)}
    return {auth_id: _password(row) for auth_id, row in rows_by_id.items() if auth_id}


def _password(row: dict[str, Any]) -> Secret | None:
    password = row.get("password")
    # A masked password is useless.
    return Secret(password) if isinstance(password, str) and password.strip("*•") else None


def quoting_auth_ids(machine_rows: Iterable[Any]) -> frozenset[str]:
    """Return the registry credentials of machines with an error message."""
    return frozenset(
        text(row, "imageAuthId")
        for row in machine_rows
        if isinstance(row, dict) and text(part(row, "statusError"), "message")
    ) - {""}


def order_secrets(order: CreateCall) -> CallSecrets:
    """Return the secrets of an order, which its reply must not reveal."""
    envs = [env for env in _order_envs(order) if env[0] != TAG_VARIABLE]
    given = tuple(Secret(value) for name, value in envs if name in order.secret_envs)
    return NO_SECRETS.with_envs(envs).plus(CallSecrets(given))


def create_request(order: CreateCall) -> dict[str, Any]:
    """Return an order in Novita's format. A registry login goes by id, so no password passes here."""
    template = order.template
    request: dict[str, Any] = {
        "name": order.name,
        "productId": order.offer.product_id,
        "gpuNum": order.gpu_num,
        "rootfsSize": order.disk_gb,
        "imageUrl": template.image,
        "clusterId": order.offer.cluster_id,
        "billingMode": order.billing_mode.value,
        "kind": "gpu",
        "envs": [{"key": key, "value": value} for key, value in _order_envs(order)],
    }
    optional = {
        "imageAuthId": template.registry_auth_id,
        "ports": ",".join(f"{port}/{kind}" for port, kind in template.ports),
        "command": template.command,
        "entrypoint": template.entrypoint,
        "minCudaVersion": template.min_cuda_version,
        # Novita spells this one id with a capital.
        "networkStorages": [{"Id": it.volume_id, "mountPoint": it.mount_path} for it in order.volumes],
    }
    return request | {key: value for key, value in optional.items() if value}


def _order_envs(order: CreateCall) -> list[tuple[str, str]]:
    envs = [(key, value) for key, value in order.template.envs if key != TAG_VARIABLE]
    # The name carries the tag too. A missing second proof is better than a refused order.
    return [*envs, (TAG_VARIABLE, order.tag)] if len(envs) < ENVS_MAX else envs
