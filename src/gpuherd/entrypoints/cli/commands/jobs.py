"""The commands about jobs: the list, one, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import typer
from rich.table import Table

from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.operation_models import Job
from gpuherd.entrypoints.cli.render.instances import when
from gpuherd.entrypoints.cli.render.lists import page_of, print_page
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption
from gpuherd.entrypoints.cli.render.output import as_json as json_of
from gpuherd.entrypoints.cli.render.tables import Column, pairs, table
from gpuherd.entrypoints.cli.runtime.command_group import group_with_default
from gpuherd.entrypoints.cli.runtime.find import find_id
from gpuherd.entrypoints.cli.runtime.options import AllPages, PageSize
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run


def build_jobs() -> typer.Typer:
    """Return `gpuherd jobs` with its subcommands."""
    jobs = group_with_default(list_jobs)
    jobs.command("show")(show_job)
    jobs.command("stats")(show_stats)
    return jobs


def list_jobs(
    context: typer.Context,
    kind: Annotated[
        str | None, typer.Option("--type", help="Only these: create_instance, send_webhook…")
    ] = None,
    status: Annotated[
        Literal["PENDING", "PROCESSING", "COMPLETED", "FAILED"] | None,
        typer.Option(case_sensitive=False, help="Only those that are so."),
    ] = None,
    instance: Annotated[
        str | None, typer.Option(metavar="NAME_OR_ID", help="Only those of this instance.")
    ] = None,
    limit: PageSize = 50,
    everything: AllPages = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List the background jobs; with a subcommand: one job, or statistics."""
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json, quiet=quiet)

    def work(herd: Gpuherd) -> None:
        instance_id = None if instance is None else find_id(herd, instance)
        found = herd.jobs.list(type=kind, status=status, instance=instance_id, page_size=limit)
        page = page_of(found, everything=everything)
        is_filtered = any(it is not None for it in (kind, status, instance))
        now, width = cli.clock.now(), output.out.width
        nothing = "no job is like that" if is_filtered else "no jobs"
        print_page(output, "jobs", page, lambda rows: _job_table(rows, now, width), nothing, lambda it: it.id)

    run(cli, output, work)


def show_job(
    context: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="ID", help="Which job.")],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show everything about one job."""
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json, quiet=quiet)

    job = run(cli, output, lambda herd: herd.jobs.get(job_id))
    if output.for_people:
        output.show(_job_page(job, cli.clock.now()))
    else:
        output.answer(job.raw, job.id)


def show_stats(context: typer.Context, as_json: JsonOption = False) -> None:
    """Count the jobs by status and type."""
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json)

    stats = run(cli, output, lambda herd: herd.jobs.stats())
    if not output.for_people:
        output.json(stats.raw)
        return
    # In the server's order, also what is newer than this client.
    counts = [(key, value) for key, value in stats.raw.items() if isinstance(value, int)]
    output.show(pairs([(key, str(value)) for key, value in (*counts, *stats.by_type.items())]))


def _style(job: Job) -> str:
    return {"COMPLETED": "green", "FAILED": "red", "PROCESSING": "cyan"}.get(job.status, "yellow")


def _attempts(job: Job) -> str:
    return "/".join(str(it) for it in (job.attempts, job.max_attempts) if it is not None)


def _job_table(rows: Sequence[Job], now: datetime, width: int) -> Table:
    columns: list[Column[Job]] = [
        Column("ID", lambda it: it.id, 4),
        Column("TYPE", lambda it: it.type, 0, shrinks_to=12),
        Column("STATUS", lambda it: it.status, 1, style=_style),
        Column("TRIES", _attempts, 3, right=True),
        Column("CREATED", lambda it: when(it.created_at, now), 5),
        Column("NEXT", lambda it: when(it.next_retry_at, now), 6),
        Column("INSTANCE", lambda it: it.instance_id or "", 7),
        Column("ERROR", lambda it: it.error or "", 2, shrinks_to=16),
    ]
    return table(columns, rows, width)


def _job_page(job: Job, now: datetime) -> Table:
    lines = (
        ("id", job.id),
        ("type", job.type),
        ("status", job.status),
        ("priority", job.priority or ""),
        ("tries", _attempts(job)),
        ("instance", job.instance_id or ""),
        ("created", when(job.created_at, now)),
        ("processed", when(job.processed_at, now)),
        ("completed", when(job.completed_at, now)),
        ("nextRetry", when(job.next_retry_at, now)),
        ("error", job.error or ""),
        ("payload", json_of(job.payload, indent=None) if job.payload else ""),
    )
    return pairs([(name, value) for name, value in lines if value])
