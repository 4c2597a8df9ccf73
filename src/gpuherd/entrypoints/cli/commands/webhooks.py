"""The commands about webhooks: endpoints, deliveries, replays, tests, and a receiver to try them with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated
from urllib.parse import quote

import typer

from gpuherd.domain.access.secret import Secret
from gpuherd.domain.webhooks.endpoint import ID_PREFIX
from gpuherd.domain.webhooks.signing import Signer
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.output import JsonOption, Mode, Output, QuietOption, SilentOption, safe
from gpuherd.entrypoints.cli.render.webhooks import (
    delivery_page,
    delivery_table,
    endpoint_page,
    endpoint_table,
    tried_line,
)
from gpuherd.entrypoints.cli.runtime.connection import ApiClient, Json
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from gpuherd.entrypoints.cli.runtime.find import find_id
from gpuherd.entrypoints.cli.runtime.listing import Listing, pages, tell
from gpuherd.entrypoints.cli.runtime.options import Since
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run
from gpuherd.ports.webhooks import DeliveryFilter


def listen(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8099,
    secret: Annotated[
        str | None,
        typer.Option(
            envvar="WEBHOOK_SECRET",
            metavar="whsec_…",
            show_default=False,
            help="Verifies what arrives. Better in the environment than here.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Receive webhooks on this machine, verify them, and print them until Ctrl-C."""
    from gpuherd.entrypoints.cli.runtime.webhook_receiver import WebhookReceiver  # noqa: PLC0415  others must start fast

    output = Output.for_command(as_json=as_json)
    receiver = WebhookReceiver(output, cli_context_of(context).clock, _usable(secret))
    try:
        asyncio.run(receiver.run(port))
    except OSError as error:
        output.note(f"port {port} cannot be used: {safe(error.strerror)}", "red")
        raise typer.Exit(int(ExitCode.FAILED)) from error
    except KeyboardInterrupt:
        output.note(f"{receiver.received} received")


def _usable(secret: str | None) -> Secret | None:
    if not secret:
        return None
    try:
        Signer([Secret(secret)])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--secret") from error
    return Secret(secret)


BASE = "/api/webhooks"
# The receiver has 15 s to answer a test.
TEST_TIMEOUT_S = 40.0

EndpointId = Annotated[str, typer.Argument(metavar="ID", help="Which endpoint (ep_…).")]


def build_webhooks() -> typer.Typer:
    """Return `gpuherd webhooks` with its subcommands."""
    webhooks = typer.Typer(no_args_is_help=True, help="Who is told what happens, and whether it arrived.")
    for name, command in (
        ("ls", list_endpoints),
        ("add", add_endpoint),
        ("rm", remove_endpoint),
        ("rotate", rotate_secret),
        ("enable", enable_endpoint),
        ("deliveries", list_deliveries),
        ("show", show),
        ("replay", replay),
        ("test", test),
        ("listen", listen),
    ):
        webhooks.command(name)(command)
    return webhooks


def list_endpoints(context: typer.Context, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """List the endpoints."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    async def work(api: ApiClient) -> None:
        body = (await api.get(f"{BASE}/endpoints")).body
        rows = body.get("endpoints")
        listing = Listing("endpoints", rows if isinstance(rows, list) else [], body.get("total"), None)
        now, width = cli.clock.now(), output.out.width
        tell(output, listing, lambda found: endpoint_table(found, now, width), "no endpoints")

    run(cli, output, work)


def add_endpoint(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="Where to send what happens.")],
    events: Annotated[
        list[str] | None, typer.Option("--event", metavar="TYPE", help="Only these; may be given often.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="A word of yours.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Add an endpoint. Its secret is shown now and never again; with -q only the secret is."""
    said = {"url": url, "events": events or None, "label": label}
    body = {key: value for key, value in said.items() if value is not None}
    _show_secret(context, f"{BASE}/endpoints", body, as_json=as_json, quiet=quiet)


def rotate_secret(
    context: typer.Context, endpoint_id: EndpointId, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Give an endpoint a new secret; for 24 hours the old one signs too. With -q only the secret is shown."""
    _show_secret(context, f"{_endpoint_path(endpoint_id)}/rotate", {}, as_json=as_json, quiet=quiet)


def remove_endpoint(
    context: typer.Context, endpoint_id: EndpointId, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Remove an endpoint; what is still on its way there is given up."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    async def work(api: ApiClient) -> None:
        body = (await api.delete(_endpoint_path(endpoint_id))).body
        if output.for_people:
            output.note(f"removed {safe(endpoint_id)}")
        else:
            output.answer(body, endpoint_id)

    run(cli, output, work)


def enable_endpoint(
    context: typer.Context, endpoint_id: EndpointId, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Switch an endpoint on again that was disabled."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    async def work(api: ApiClient) -> None:
        _present(output, (await api.post(f"{_endpoint_path(endpoint_id)}/enable", {})).body, cli.clock.now)

    run(cli, output, work)


def list_deliveries(
    context: typer.Context,
    state: Annotated[
        DeliveryFilter | None, typer.Option(case_sensitive=False, help="Only those that stand so.")
    ] = None,
    instance: Annotated[
        str | None, typer.Option(metavar="NAME_OR_ID", help="Only those of this instance.")
    ] = None,
    endpoint: Annotated[str | None, typer.Option(metavar="ID", help="Only those to this endpoint.")] = None,
    kind: Annotated[str | None, typer.Option("--type", help="Only these: instance.ready…")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many at most (a page, with --all).")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All pages.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List what was sent, or could not be."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    async def work(api: ApiClient) -> None:
        said = {"state": state, "endpointId": endpoint, "type": kind}
        query = [("limit", str(limit)), *((key, value) for key, value in said.items() if value is not None)]
        if instance is not None:
            query.append(("instanceId", await find_id(api, instance)))
        listing = await pages(api, f"{BASE}/deliveries", "deliveries", query, everything=everything)
        now, width = cli.clock.now(), output.out.width
        tell(output, listing, lambda found: delivery_table(found, now, width), "no deliveries")

    run(cli, output, work)


def show(
    context: typer.Context,
    which: Annotated[str, typer.Argument(metavar="ID", help="An endpoint (ep_…) or a delivery (msg_…).")],
    as_json: JsonOption = False,
) -> None:
    """Show everything about one endpoint, or one delivery with its tries."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json)

    async def work(api: ApiClient) -> None:
        path = _endpoint_path(which) if which.startswith(ID_PREFIX) else _delivery_path(which)
        _present(output, (await api.get(path)).body, cli.clock.now)

    run(cli, output, work)


def replay(
    context: typer.Context,
    delivery_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Which delivery (msg_…).")] = None,
    since: Since = None,
    dead: Annotated[bool, typer.Option("--dead", help="With --since: only what was given up.")] = False,
    endpoint: Annotated[
        str | None, typer.Option(metavar="ID", help="With --since: only those to this endpoint.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send one delivery again, or all that failed since a while ago: the same ids, the same bytes."""
    if (delivery_id is None) == (since is None):
        raise typer.BadParameter("give the ID of one delivery, or --since")
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json)

    async def work(api: ApiClient) -> None:
        if delivery_id is not None:
            _present(
                output, (await api.post(f"{_delivery_path(delivery_id)}/replay", {})).body, cli.clock.now
            )
            return
        moment = cli.clock.now() - timedelta(seconds=since or 0)
        body: Json = {"since": moment.isoformat(), "state": "dead" if dead else "failed"}
        reply = (await api.post(f"{BASE}/replay", body | ({"endpointId": endpoint} if endpoint else {}))).body
        if output.for_people:
            output.note(f"{safe(reply.get('count'))} on their way again")
        else:
            output.json(reply)

    run(cli, output, work)


def test(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="URL|ID", help="An address, or an endpoint (ep_…).")],
    as_json: JsonOption = False,
    quiet: SilentOption = False,
) -> None:
    """Send one signed test event now; exit code 1 if it is not accepted."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    async def work(api: ApiClient) -> None:
        key = "endpointId" if target.startswith(ID_PREFIX) else "url"
        tried = Details((await api.post(f"{BASE}/test", {key: target}, timeout_s=TEST_TIMEOUT_S)).body)
        if output.for_people:
            output.show(tried_line(tried))
        elif not output.silent:
            output.json(dict(tried.raw))
        if tried.raw.get("accepted") is not True:
            raise typer.Exit(int(ExitCode.FAILED))

    run(cli, output, work)


def _show_secret(context: typer.Context, path: str, body: Json, *, as_json: bool, quiet: bool) -> None:
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    async def work(api: ApiClient) -> None:
        made = (await api.post(path, body)).body
        if output.mode is Mode.IDS:
            output.ids([Details(made).text("secret")])
            return
        _present(output, made, cli.clock.now)
        if output.for_people:
            output.note("keep the secret now: it is never shown again", "yellow")

    run(cli, output, work)


def _present(output: Output, body: Json, now: Callable[[], datetime]) -> None:
    """Print an endpoint or a delivery."""
    details = Details(body)
    if not output.for_people:
        output.answer(body, details.id)
        return
    draw = endpoint_page if details.id.startswith(ID_PREFIX) else delivery_page
    output.show(draw(details, now()))


def _endpoint_path(endpoint_id: str) -> str:
    return f"{BASE}/endpoints/{quote(endpoint_id, safe='')}"


def _delivery_path(delivery_id: str) -> str:
    return f"{BASE}/deliveries/{quote(delivery_id, safe='')}"
