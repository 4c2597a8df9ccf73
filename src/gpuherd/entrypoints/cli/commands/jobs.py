"""The commands about jobs: the list, one, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from urllib.parse import quote

import typer
from rich.table import Table

from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.instances import when
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption
from gpuherd.entrypoints.cli.render.output import as_json as json_of
from gpuherd.entrypoints.cli.render.tables import Column, pairs, table
from gpuherd.entrypoints.cli.runtime.connection import ApiClient
from gpuherd.entrypoints.cli.runtime.find import find_id
from gpuherd.entrypoints.cli.runtime.listing import pages, tell
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run
from gpuherd.jobs.job import JobStatus


def build_jobs() -> typer.Typer:
    """Return `gpuherd jobs` with its subcommands."""
    jobs = typer.Typer(invoke_without_command=True)
    jobs.callback()(list_jobs)
    jobs.command("show")(show_job)
    jobs.command("stats")(show_stats)
    return jobs


def list_jobs(
    context: typer.Context,
    kind: Annotated[
        str | None, typer.Option("--type", help="Only these: create_instance, send_webhook…")
    ] = None,
    status: Annotated[
        JobStatus | None, typer.Option(case_sensitive=False, help="Only those that are so.")
    ] = None,
    instance: Annotated[
        str | None, typer.Option(metavar="NAME_OR_ID", help="Only those of this instance.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many at most (a page, with --all).")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All pages.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List the background jobs; with a subcommand: one job, or statistics."""
    if context.invoked_subcommand is not None:
        return
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json, quiet=quiet)

    async def work(api: ApiClient) -> None:
        query = [("limit", str(limit))]
        query += [(key, value) for key, value in (("type", kind), ("status", status)) if value is not None]
        if instance is not None:
            query.append(("instanceId", await find_id(api, instance)))
        listing = await pages(api, "/api/jobs", "jobs", query, everything=everything)
        nothing = "no jobs" if len(query) == 1 else "no job is like that"
        tell(output, listing, lambda rows: _job_table(rows, cli.clock.now(), output.out.width), nothing)

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

    async def work(api: ApiClient) -> None:
        job = Details((await api.get(f"/api/jobs/{quote(job_id, safe='')}")).body)
        if output.for_people:
            output.show(_job_page(job, cli.clock.now()))
        else:
            output.answer(job.raw, job.id)

    run(cli, output, work)


def show_stats(context: typer.Context, as_json: JsonOption = False) -> None:
    """Count the jobs by status and type."""
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json)

    async def work(api: ApiClient) -> None:
        stats = (await api.get("/api/jobs/stats")).body
        if not output.for_people:
            output.json(stats)
            return
        counts = [(key, value) for key, value in stats.items() if not isinstance(value, dict)]
        kinds = [(key, _counted(value)) for key, value in Details(stats).mapping("byType").items()]
        output.show(pairs([(key, str(value)) for key, value in (*counts, *kinds)]))

    run(cli, output, work)


def _counted(value: object) -> str:
    """Read a count, or counts by status."""
    if isinstance(value, dict):
        return ", ".join(f"{number} {status}" for status, number in value.items() if number)
    return str(value)


def _style(job: Details) -> str:
    return {"COMPLETED": "green", "FAILED": "red", "PROCESSING": "cyan"}.get(job.status, "yellow")


def _attempts(job: Details) -> str:
    return "/".join(filter(None, (job.text("attempts"), job.text("maxAttempts"))))


def _job_table(rows: Sequence[Details], now: datetime, width: int) -> Table:
    columns: list[Column[Details]] = [
        Column("ID", lambda j: j.id, 4),
        Column("TYPE", lambda j: j.text("type"), 0, shrinks_to=12),
        Column("STATUS", lambda j: j.status, 1, style=_style),
        Column("TRIES", _attempts, 3, right=True),
        Column("CREATED", lambda j: when(j, "createdAt", now), 5),
        Column("NEXT", lambda j: when(j, "nextRetryAt", now), 6),
        Column("INSTANCE", lambda j: j.text("instanceId"), 7),
        Column("ERROR", lambda j: j.text("error"), 2, shrinks_to=16),
    ]
    return table(columns, rows, width)


def _job_page(job: Details, now: datetime) -> Table:
    moments = ("createdAt", "processedAt", "completedAt", "nextRetryAt")
    return pairs(
        [
            (name, value)
            for name, value in (
                ("id", job.id),
                ("type", job.text("type")),
                ("status", job.status),
                ("priority", job.text("priority")),
                ("tries", _attempts(job)),
                ("instance", job.text("instanceId")),
                *((key.removesuffix("At"), when(job, key, now)) for key in moments),
                ("error", job.text("error")),
                ("payload", json_of(job.mapping("payload"), indent=None) if job.mapping("payload") else ""),
            )
            if value
        ]
    )
