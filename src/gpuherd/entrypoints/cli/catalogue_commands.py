"""The commands about what the cloud has: offers, regions, templates, registry, volumes, prewarm."""

from __future__ import annotations

from typing import Any

import click

from gpuherd.entrypoints.cli.cli_output import Column, ListTable, Output, Row, safe, text_of, usd_an_hour
from gpuherd.entrypoints.cli.command_runner import (
    TIMEOUT_OPTION,
    WAIT_OPTION,
    YES_OPTION,
    completion,
    detaches_by_interrupt,
    find_one,
    group_with_default,
    remove_after_confirm,
    server_command,
)
from gpuherd.entrypoints.cli.instance_facts import stock_of
from gpuherd.entrypoints.cli.launch_options import BILLING_MODES, REGISTRY_AUTH, region_choices
from gpuherd.entrypoints.cli.server_connection import ServerConnection, path_of

# --- what can be rented ---


@server_command(
    "offers",
    click.option("--gpu", "--product", "gpu", help="Only these; part of the name is enough: 4090."),
    click.option(
        "--billing",
        type=click.Choice(["spot", "on-demand"]),
        help="Whose price to show; the server says spot.",
    ),
    ids=True,
)
def list_offers(server: ServerConnection, output: Output, gpu: str | None, billing: str | None) -> None:
    """List what can be rented, where, and for how much; the cheapest region of each GPU first."""
    mode = BILLING_MODES[billing] if billing else None
    found = server.rows("/api/products", "products", productName=gpu, billingMode=mode)
    products = found["products"]
    if not output.for_people or not products:
        empty = "nothing is sold under this name" if gpu is not None else "nothing is sold now"
        output.list(ListTable("products", (), empty, id=lambda row: str(row["productId"])), found)
        return
    # One line per region, because users choose a region.
    rows = [{**product, **region} for product in products for region in _regions(product)]
    output.table(OFFER_COLUMNS, rows)


@server_command("templates", ids=True)
def list_templates(server: ServerConnection, output: Output) -> None:
    """List what can run on an instance."""
    found = server.rows("/api/templates", "templates")
    has_problem = any(row.get("problem") for row in found["templates"])
    columns = TEMPLATE_COLUMNS if has_problem else TEMPLATE_COLUMNS[:-1]
    output.list(ListTable("templates", columns, "there are no templates"), found)


@server_command("regions", ids=True)
def list_regions(server: ServerConnection, output: Output) -> None:
    """List where instances can run."""
    output.list(REGIONS, server.rows("/api/regions", "regions"))


@server_command("ls", ids=True)
def list_registry_auths(server: ServerConnection, output: Output) -> None:
    """List the account's registry credentials, without their passwords."""
    output.list(REGISTRY_AUTHS, server.rows("/api/registry-auths", "registryAuths"))


registry = group_with_default(
    "registry", list_registry_auths, help="Logins to registries with private images; the cloud keeps them."
)


def _regions(product: Row) -> list[Row]:
    return list(product.get("regions") or ({},))


def _offer_style(offer: Row) -> str:
    return "" if offer.get("available") else "dim"


def _gb(number: object) -> str:
    return f"{number} GB" if number else ""


def _ports(template: Row) -> str:
    return ", ".join(f"{port.get('port')}/{port.get('type')}" for port in template.get("ports") or ())


OFFER_COLUMNS = (
    Column("GPU", "productName", 0, shrinks_to=14, style=_offer_style),
    Column("REGION", "region", 2),
    Column("PRICE/GPU", lambda row: usd_an_hour(row.get("gpuHourlyPrice")), 1, right=True),
    Column("STOCK", stock_of, 3, style=_offer_style),
    Column("CPU", "cpuPerGpu", 5, right=True),
    Column("MEMORY", lambda row: _gb(row.get("memoryPerGpu")), 4, right=True),
)
TEMPLATE_COLUMNS = (
    Column("ID", "id", 0),
    Column("NAME", "name", 1, shrinks_to=24),
    Column("PORTS", _ports, 3, shrinks_to=10),
    Column("IMAGE", "imageUrl", 4, shrinks_to=20),
    Column("PROBLEM", "problem", 2, shrinks_to=16, style=lambda _: "red"),
)
REGIONS = ListTable(
    "regions",
    (
        Column("CODE", "code", 0),
        Column("LABEL", "label", 1),
        Column("CLUSTER", "clusterId", 3),
        Column("GPUS", lambda row: ", ".join(row.get("gpuNames") or ()), 2, shrinks_to=20),
    ),
    "there are no regions",
    id=lambda row: str(row["code"]),
)
REGISTRY_AUTHS = ListTable(
    "registryAuths",
    (
        Column("NAME", "name", 0, shrinks_to=12),
        Column("USER", "username", 1, shrinks_to=12),
        Column("ID", "id", 0),
    ),
    "no registry credentials; make one in the cloud's console",
)


# --- network volumes ---


VOLUMES = ListTable(
    "volumes",
    (
        Column("NAME", "name", 0, shrinks_to=12),
        Column("REGION", "region", 0),
        Column("SIZE", lambda row: f"{row['sizeGb']} GB", 0, right=True),
        Column("PRICE", lambda row: usd_an_hour(row.get("hourlyPrice")), 0, right=True),
        Column("ID", "id", 4, shrinks_to=12),
    ),
    "no volumes; make one: gpuherd volumes create NAME --region CN-HK-01 --size 100",
)


@server_command("ls", ids=True)
def list_volumes(server: ServerConnection, output: Output) -> None:
    """List the account's network volumes with region and price."""
    output.list(VOLUMES, server.rows("/api/volumes", "volumes"))


@server_command(
    "create",
    click.argument("name", help="What it is called; no other volume may be."),
    click.option(
        "--region",
        required=True,
        metavar="REGION",
        shell_complete=completion(region_choices),
        help="Where: only machines there can mount it.",
    ),
    click.option("--size", required=True, type=int, metavar="GB", help="How large, in GB."),
    ids=True,
)
def create_volume(server: ServerConnection, output: Output, name: str, region: str, size: int) -> None:
    """Make a network volume. It costs money until it is removed, mounted or not."""
    made = server.post("/api/volumes", {"name": name, "region": region, "sizeGb": size})
    if output.for_people:
        price = usd_an_hour(made.get("hourlyPrice"))
        output.line(f"{safe(made['name'])} is made in {safe(made['region'])} for {price}")
        output.note(f"id: {safe(made['id'])}")
    else:
        output.answer(made, str(made["id"]))


@server_command(
    "rm", click.argument("volume", metavar="NAME_OR_ID", help="Which volume."), YES_OPTION, ids=True
)
def remove_volume(server: ServerConnection, output: Output, volume: str, yes: bool) -> None:
    """Remove a network volume with all its data; not while a machine has it."""

    def describe(found: Row) -> tuple[str, str]:
        name = safe(found["name"])
        size = f"{found['sizeGb']} GB in {safe(found['region'])}"
        return f"Remove {name} ({size}) with all its data?", name

    nouns = ("volume", "volumes are called")
    remove_after_confirm(
        output,
        lambda: find_one(
            server.rows("/api/volumes", "volumes")["volumes"], volume, "name", "VOLUME_NOT_FOUND", nouns
        ),
        lambda found: server.delete(path_of("volumes", str(found["id"]))),
        describe,
        yes=yes,
    )


volumes = group_with_default(
    "volumes",
    list_volumes,
    create_volume,
    remove_volume,
    help="Network volumes: storage that outlives machines, and costs by itself.",
)


# --- image prewarm ---


PREWARM_STYLES = {"succeeded": "green", "failed": "red", "unknown": "yellow"}


@server_command(
    "ls",
    click.option("--state", help="Only those: pending, running, succeeded, failed, unknown."),
    click.option(
        "--region", metavar="REGION", shell_complete=completion(region_choices), help="Only those there."
    ),
    ids=True,
)
def list_prewarms(server: ServerConnection, output: Output, state: str | None, region: str | None) -> None:
    """List the account's prewarm tasks, and how many there may be."""
    found = server.rows("/api/prewarms", "prewarms", state=state, region=region)
    output.list(PREWARMS, found)
    if output.for_people:
        quota = found["quota"]
        used = f"{quota['used']} of {quota['limit']} tasks"
        output.note(f"{used}; an image may have {quota.get('perImageGb')} GB", "dim")


@server_command(
    "create",
    click.argument("image", help="The image to pull: docker.io/pytorch/pytorch:…"),
    click.option(
        "--region",
        required=True,
        metavar="REGION",
        shell_complete=completion(region_choices),
        help="Where: machines there start sooner.",
    ),
    click.option(
        "--product",
        multiple=True,
        help="Only for this product, by id or name. May be given often; without it for all.",
    ),
    REGISTRY_AUTH,
    click.option("--note", help="What it is for."),
    WAIT_OPTION,
    TIMEOUT_OPTION,
    ids=True,
)
def create_prewarm(
    server: ServerConnection,
    output: Output,
    image: str,
    region: str,
    product: tuple[str, ...],
    registry_auth: str | None,
    note: str | None,
    wait: bool,
    timeout: float,
) -> None:
    """Have an image pulled into a region. An account may have few such tasks, finished ones included."""
    body = {
        "imageUrl": image,
        "region": region,
        "registryAuthId": registry_auth,
        "products": list(product) or None,
        "note": note,
    }
    farewell = "the pull goes on, if it was accepted; look with: gpuherd prewarm ls"
    with detaches_by_interrupt(output, lambda: farewell):
        made: Row = server.post("/api/prewarms", body)
        if wait:
            made = _follow_prewarm(server, output, str(made["id"]), timeout)
    if not output.for_people:
        output.answer(made, str(made["id"]))
        return
    is_there, where = made["state"] == "succeeded", safe(made["region"])
    words = f"is in {where}, {_size(made)}" if is_there else f"goes to {where}"
    output.line(f"{safe(made['imageUrl'])} {words}")
    output.note(f"id: {safe(made['id'])}")


@server_command("rm", click.argument("task", metavar="ID_OR_IMAGE", help="Which task."), YES_OPTION, ids=True)
def remove_prewarm(server: ServerConnection, output: Output, task: str, yes: bool) -> None:
    """Remove a prewarm task, which makes room for another. Machines that run are not touched."""

    def describe(found: Row) -> tuple[str, str]:
        name = f"{safe(found['imageUrl'])} from {safe(found['region'])}"
        return f"Remove {name} ({safe(found['state'])})?", name

    nouns = ("prewarm task", "prewarm tasks are for")
    remove_after_confirm(
        output,
        lambda: find_one(
            server.rows("/api/prewarms", "prewarms")["prewarms"],
            task,
            "imageUrl",
            "PREWARM_NOT_FOUND",
            nouns,
        ),
        lambda found: server.delete(path_of("prewarms", str(found["id"]))),
        describe,
        yes=yes,
    )


prewarm = group_with_default(
    "prewarm",
    list_prewarms,
    create_prewarm,
    remove_prewarm,
    help="Image prewarm: pull an image into a region before a machine needs it.",
)


def _follow_prewarm(server: ServerConnection, output: Output, prewarm_id: str, timeout: float) -> Row:
    # The client loads asyncio, aiohttp and pydantic, which the other commands of this module do not need.
    from gpuherd.entrypoints.cli.command_client import as_row, open_client  # noqa: PLC0415

    def show_state(task: Any) -> None:
        row = as_row(task)
        if output.for_people:
            output.note(safe(f"{row['imageUrl']}: {row['state']}"), "dim")

    with open_client(server, output.clock) as client:
        return as_row(client.prewarms.wait(prewarm_id, timeout, show_state))


def _size(task: Row) -> str:
    size = task.get("sizeBytes")
    return "" if size is None else f"{size / 1e9:.1f} GB"


def _products(task: Row) -> str:
    names = [
        text_of(product.get("productName") or product.get("productId"))
        for product in task.get("products") or ()
    ]
    return ", ".join(dict.fromkeys(names)) or "all"


PREWARMS = ListTable(
    "prewarms",
    (
        Column("IMAGE", "imageUrl", 0, shrinks_to=16),
        Column("REGION", "region", 0),
        Column("STATE", "state", 0, style=lambda row: PREWARM_STYLES.get(row["state"], "")),
        Column("SIZE", _size, 1, right=True),
        Column("PRODUCTS", _products, 3, shrinks_to=8),
        Column("NOTE", "note", 4, shrinks_to=8),
        Column("ID", "id", 2),
    ),
    "no prewarm tasks; make one: gpuherd prewarm create IMAGE --region CN-HK-01",
)
