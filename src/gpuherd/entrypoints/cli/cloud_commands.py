"""The commands about the cloud and the work behind it: orphans, cloud, creates, jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from gpuherd.entrypoints.cli.cli_output import (
    Ago,
    Column,
    ListTable,
    Mode,
    Output,
    Row,
    as_json,
    safe,
    usd_an_hour,
)
from gpuherd.entrypoints.cli.command_runner import (
    ALL_OPTION,
    INSTANCE_OPTION,
    LIMIT_OPTION,
    YES_OPTION,
    confirm_or_exit,
    group_with_default,
    require_terminal,
    server_command,
)
from gpuherd.entrypoints.cli.instance_facts import facts_of, find_instance_id
from gpuherd.entrypoints.cli.server_connection import ServerConnection, path_of
from gpuherd.entrypoints.cli.server_replies import ServerReply
from gpuherd.entrypoints.durations import rough_duration

# --- orphans: machines on the account that no instance has ---


_CLOUD_ID = click.argument("cloud_id", metavar="CLOUD_ID", help="Which machine, by its id in the cloud.")
_VERDICT_STYLES = {"surplus": "red", "unrecorded": "yellow"}


def _age(orphan: Row) -> str:
    return "" if orphan.get("ageSeconds") is None else rough_duration(orphan["ageSeconds"])


ORPHANS = ListTable(
    "orphans",
    (
        Column("CLOUD ID", "cloudId", 0),
        Column("VERDICT", "verdict", 1, style=lambda row: _VERDICT_STYLES.get(row.get("verdict"), "dim")),
        Column("NAME", "name", 3, shrinks_to=14),
        Column("STATUS", "status", 4),
        Column("PRICE", lambda row: usd_an_hour(row.get("hourlyPrice")), 2, right=True),
        Column("SO FAR", lambda row: usd_an_hour(row.get("costSoFar")).removesuffix("/h"), 5, right=True),
        Column("AGE", _age, 6, right=True),
        Column("ORDER", "order", 7),
        Column("GPU", "productName", 8, shrinks_to=12),
        Column("REGION", "region", 9),
        Column("INSTANCE", "instanceId", 10),
    ),
    "every machine on the account belongs to an instance",
    id=lambda row: str(row["cloudId"]),
)


@server_command(
    "orphans",
    click.option("--verdict", type=click.Choice(["surplus", "unrecorded", "foreign"]), help="Only these."),
    ids=True,
)
def list_orphans(server: ServerConnection, output: Output, verdict: str | None) -> None:
    """List machines that cost money and belong to no instance; with a subcommand: do something about one."""
    found = server.rows("/api/orphans", "orphans", verdict=verdict)
    if output.list(ORPHANS, found):
        count = len(found["orphans"])
        machines = "1 machine" if count == 1 else f"{count} machines"
        output.note(f"{machines} without an instance, {usd_an_hour(found.get('hourlyPrice'))}")
        if found.get("braked"):
            output.note(f"the collector is braked: {safe(found['braked'])}", "yellow")
            output.note("look at the surplus machines, then: gpuherd orphans resume", "yellow")


@server_command(
    "adopt",
    click.argument(
        "cloud_id", required=False, metavar="[CLOUD_ID]", help="Which machine, by its id in the cloud."
    ),
    click.option(
        "--all", "everything", is_flag=True, help="Every machine with our tag that this database has lost."
    ),
    ids=True,
)
def adopt(server: ServerConnection, output: Output, cloud_id: str | None, everything: bool) -> None:
    """Make a machine an instance. Its name in the cloud stays."""
    if everything == (cloud_id is not None):
        raise click.BadParameter("give the id of one machine, or --all", param_hint="CLOUD_ID")
    wanted = [cloud_id] if cloud_id is not None else _unrecorded(server)
    adopted = [server.post(path_of("orphans", machine_id, "adopt")) for machine_id in wanted]
    if output.mode is Mode.JSON:
        output.json({"instances": adopted, "total": len(adopted)} if everything else adopted[0])
    elif output.mode is Mode.IDS:
        output.ids(str(instance["id"]) for instance in adopted)
    else:
        for instance in adopted:
            output.line(f"{safe(instance['name'])} is {safe(instance['status'])}: {safe(instance['id'])}")
        if not adopted:
            output.note("there is nothing to adopt")


@server_command("stop", _CLOUD_ID, ids=True)
def stop_orphan(server: ServerConnection, output: Output, cloud_id: str) -> None:
    """Stop a machine. Its disk stays, its GPU does not."""
    _order(server, output, cloud_id, "stop")


@server_command("delete", _CLOUD_ID, YES_OPTION, ids=True)
def delete_orphan(server: ServerConnection, output: Output, cloud_id: str, yes: bool) -> None:
    """Remove a machine with all its data, also one that gpuherd did not make."""
    if not yes:
        require_terminal()
        orphan = server.get(path_of("orphans", cloud_id))
        output.note(f"{safe(orphan['name'])}  {safe(cloud_id)}", "bold")
        facts = (orphan["verdict"], orphan.get("status"), *facts_of(orphan))
        output.note(" · ".join(safe(fact) for fact in facts if fact))
        output.note(safe(orphan.get("reason") or ""))
        confirm_or_exit(output, "Delete it with all its data?", "nothing was deleted")
    _order(server, output, cloud_id, "delete")


@server_command("resume", YES_OPTION)
def resume_collector(server: ServerConnection, output: Output, yes: bool) -> None:
    """Release the collector's brake: the surplus machines that it held back are removed."""
    if not yes:
        require_terminal()
        confirm_or_exit(output, "Remove the surplus machines that were held back?", "nothing was deleted")
    released = server.post("/api/orphans/resume")
    count = len(released["released"])
    if output.for_people:
        output.out.print(f"the collector goes on; {count} machines that it held back are removed now")
    else:
        output.json(released)


orphans = group_with_default("orphans", list_orphans, adopt, stop_orphan, delete_orphan, resume_collector)


def _unrecorded(server: ServerConnection) -> list[str]:
    # If an old server does not filter, nothing else may be adopted by accident.
    found = server.rows("/api/orphans", "orphans", verdict="unrecorded")["orphans"]
    return [str(row["cloudId"]) for row in found if row["verdict"] == "unrecorded"]


def _order(server: ServerConnection, output: Output, cloud_id: str, verb: str) -> None:
    orphan = server.post(path_of("orphans", cloud_id, verb))
    if output.for_people:
        output.line(f"{safe(orphan['name'])} is ordered to {verb}; see gpuherd orphans")
    else:
        output.answer(orphan, str(orphan["cloudId"]))


# --- cloud: what of it is not believed; creates: whether machines are rented ---


@server_command("cloud")
def show_cloud(server: ServerConnection, output: Output) -> None:
    """Show what of the cloud is not believed: the account of the key, or the loss of many machines."""
    _print_cloud(output, server.get("/api/cloud"))


@server_command("confirm-account")
def confirm_account(server: ServerConnection, output: Output) -> None:
    """Say that NOVITA_API_KEY is of the account on which the machines of this database are."""
    _print_cloud(output, server.post("/api/cloud/confirm-account"))


@server_command("confirm-loss")
def confirm_loss(server: ServerConnection, output: Output) -> None:
    """Say that the machines which are missing now are gone: their owners are told."""
    _print_cloud(output, server.post("/api/cloud/confirm-loss"))


@server_command("creates")
def show_creates(server: ServerConnection, output: Output) -> None:
    """Say whether machines are rented, and why not; with a subcommand: let it go on."""
    _print_creates(output, server.get("/api/creates"))


@server_command("resume")
def resume_creates(server: ServerConnection, output: Output) -> None:
    """Rent again, after you have seen to the reason why nothing was rented."""
    _print_creates(output, server.post("/api/creates/resume"))


cloud = group_with_default("cloud", show_cloud, confirm_account, confirm_loss)
creates = group_with_default("creates", show_creates, resume_creates)


def _print_cloud(output: Output, trust: ServerReply) -> None:
    if not output.for_people:
        output.json(trust)
        return
    account = trust.get("accountUnconfirmed") or "the account is the one that this database belongs to"
    output.line(safe(account))
    output.line(safe(trust.get("vanishingHeld") or "no loss of machines is held back"))


def _print_creates(output: Output, state: ServerReply) -> None:
    if not output.for_people:
        output.json(state)
    elif state.get("blocked"):
        output.line(f"nothing is rented: {safe(state['blocked'])}")
    else:
        output.out.print("machines are rented")


# --- jobs ---


_JOB_STYLES = {"COMPLETED": "green", "FAILED": "red", "PROCESSING": "cyan"}


@server_command(
    "jobs",
    click.option("--type", "kind", help="Only these: create_instance, send_webhook…"),
    click.option(
        "--status",
        type=click.Choice(["PENDING", "PROCESSING", "COMPLETED", "FAILED"], case_sensitive=False),
        help="Only those with this status.",
    ),
    INSTANCE_OPTION,
    LIMIT_OPTION,
    ALL_OPTION,
    ids=True,
)
def list_jobs(
    server: ServerConnection,
    output: Output,
    kind: str | None,
    status: str | None,
    instance: str | None,
    limit: int,
    everything: bool,
) -> None:
    """List the background jobs; with a subcommand: one job, or statistics."""
    instance_id = None if instance is None else find_instance_id(server, instance)
    found = server.rows(
        "/api/jobs",
        "jobs",
        everything=everything,
        type=kind,
        status=status,
        instanceId=instance_id,
        limit=limit,
    )
    is_filtered = any(value is not None for value in (kind, status, instance))
    output.list(ListTable("jobs", JOB_COLUMNS, "no job is like that" if is_filtered else "no jobs"), found)


@server_command("show", click.argument("job_id", metavar="ID", help="Which job."), ids=True)
def show_job(server: ServerConnection, output: Output, job_id: str) -> None:
    """Show everything about one job."""
    job = server.get(path_of("jobs", job_id))
    if not output.for_people:
        output.answer(job, str(job["id"]))
        return
    when = output.when
    output.page(
        ("id", str(job["id"])),
        ("type", str(job["type"])),
        ("status", str(job["status"])),
        ("priority", job.get("priority")),
        ("tries", _attempts(job)),
        ("instance", job.get("instanceId")),
        ("created", when(job.get("createdAt"))),
        ("processed", when(job.get("processedAt"))),
        ("completed", when(job.get("completedAt"))),
        ("nextRetry", when(job.get("nextRetryAt"))),
        ("error", job.get("error")),
        ("payload", as_json(job["payload"], indent=None) if job.get("payload") else ""),
    )


@server_command("stats")
def show_stats(server: ServerConnection, output: Output) -> None:
    """Count the jobs by status and type."""
    stats = server.get("/api/jobs/stats")
    by_type: Mapping[str, Any] = stats.get("byType") or {}
    if not output.for_people:
        output.json(stats)
        return
    # In the server's order, also values that are newer than this command.
    counts = [(name, value) for name, value in stats.items() if isinstance(value, int)]
    output.page(*((name, str(value)) for name, value in (*counts, *by_type.items())))


jobs = group_with_default("jobs", list_jobs, show_job, show_stats)


def _attempts(job: Row) -> str:
    return "/".join(
        str(count) for count in (job.get("attempts"), job.get("maxAttempts")) if count is not None
    )


JOB_COLUMNS = (
    Column("ID", "id", 4),
    Column("TYPE", "type", 0, shrinks_to=12),
    Column("STATUS", "status", 1, style=lambda row: _JOB_STYLES.get(row.get("status"), "yellow")),
    Column("TRIES", _attempts, 3, right=True),
    Column("CREATED", Ago("createdAt"), 5),
    Column("NEXT", Ago("nextRetryAt"), 6),
    Column("INSTANCE", "instanceId", 7),
    Column("ERROR", "error", 2, shrinks_to=16),
)
