"""The commands about webhooks: endpoints, deliveries, replays, tests, and a receiver to try them with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Literal

import typer

from gpuherd.client.access_resources import NewSecret
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.webhook_models import Delivery, WebhookEndpoint
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_signing import Signer
from gpuherd.entrypoints.cli.render.lists import page_of, print_page, whole
from gpuherd.entrypoints.cli.render.output import JsonOption, Mode, Output, QuietOption, SilentOption, safe
from gpuherd.entrypoints.cli.render.webhooks import (
    delivery_page,
    delivery_table,
    endpoint_page,
    endpoint_table,
    tried_line,
)
from gpuherd.entrypoints.cli.runtime.command_group import group_with_default
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from gpuherd.entrypoints.cli.runtime.find import find_id
from gpuherd.entrypoints.cli.runtime.options import AllPages, PageSize, Since
from gpuherd.entrypoints.cli.runtime.session import CliContext, cli_context_of, run

ENDPOINT_PREFIX = "ep_"


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
        receiver.run(port)
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


EndpointId = Annotated[str, typer.Argument(metavar="ID", help="Which endpoint (ep_…).")]


def build_webhooks() -> typer.Typer:
    """Return `gpuherd webhooks` with its subcommands."""
    webhooks = group_with_default(list_endpoints, "Who is told what happens, and whether it arrived.")
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

    def work(herd: Gpuherd) -> None:
        page, now, width = whole(herd.webhooks.endpoints.list()), cli.clock.now(), output.out.width
        print_page(
            output,
            "endpoints",
            page,
            lambda found: endpoint_table(found, now, width),
            "no endpoints",
            lambda it: it.id,
        )

    run(cli, output, work)


def add_endpoint(
    context: typer.Context,
    url: Annotated[
        str,
        typer.Argument(
            help="Where to send what happens; for mail mailto:you@example.com. - reads it from the standard "
            "input, where no list of processes shows it."
        ),
    ],
    kind: Annotated[
        Literal["webhook", "slack", "discord", "ntfy", "email"] | None,
        typer.Option(case_sensitive=False, help="How it is written: signed JSON (webhook), or for people."),
    ] = None,
    events: Annotated[
        list[str] | None, typer.Option("--event", metavar="TYPE", help="Only these; may be given often.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="A word of yours.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Add an endpoint. The secret of a webhook is shown now and never again; with -q only the secret is."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    address = sys.stdin.readline().strip() if url == "-" else url
    _print_secret(
        cli,
        output,
        lambda herd: herd.webhooks.endpoints.add(address, events=events or None, label=label, kind=kind),
    )


def rotate_secret(
    context: typer.Context, endpoint_id: EndpointId, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Give an endpoint a new secret; for 24 hours the old one signs too. With -q only the secret is shown."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    _print_secret(cli, output, lambda herd: herd.webhooks.endpoints.rotate(endpoint_id))


def remove_endpoint(
    context: typer.Context, endpoint_id: EndpointId, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Remove an endpoint; what is still on its way there is given up."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    removed = run(cli, output, lambda herd: herd.webhooks.endpoints.remove(endpoint_id))
    if output.for_people:
        output.note(f"removed {safe(endpoint_id)}")
    else:
        output.answer(removed.raw, endpoint_id)


def enable_endpoint(
    context: typer.Context, endpoint_id: EndpointId, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Switch an endpoint on again that was disabled."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    _print(cli, output, run(cli, output, lambda herd: herd.webhooks.endpoints.enable(endpoint_id)))


def list_deliveries(
    context: typer.Context,
    state: Annotated[
        Literal["pending", "delivered", "failed", "dead"] | None,
        typer.Option(case_sensitive=False, help="Only those that stand so."),
    ] = None,
    instance: Annotated[
        str | None, typer.Option(metavar="NAME_OR_ID", help="Only those of this instance.")
    ] = None,
    endpoint: Annotated[str | None, typer.Option(metavar="ID", help="Only those to this endpoint.")] = None,
    kind: Annotated[str | None, typer.Option("--type", help="Only these: instance.ready…")] = None,
    limit: PageSize = 50,
    everything: AllPages = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List what was sent, or could not be."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    def work(herd: Gpuherd) -> None:
        instance_id = None if instance is None else find_id(herd, instance)
        found = herd.webhooks.deliveries.list(
            state=state, instance=instance_id, endpoint=endpoint, type=kind, page_size=limit
        )
        page, now, width = page_of(found, everything=everything), cli.clock.now(), output.out.width
        print_page(
            output,
            "deliveries",
            page,
            lambda rows: delivery_table(rows, now, width),
            "no deliveries",
            lambda it: it.id,
        )

    run(cli, output, work)


def show(
    context: typer.Context,
    which: Annotated[str, typer.Argument(metavar="ID", help="An endpoint (ep_…) or a delivery (msg_…).")],
    as_json: JsonOption = False,
) -> None:
    """Show everything about one endpoint, or one delivery with its tries."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json)

    def work(herd: Gpuherd) -> WebhookEndpoint | Delivery:
        is_endpoint = which.startswith(ENDPOINT_PREFIX)
        return herd.webhooks.endpoints.get(which) if is_endpoint else herd.webhooks.deliveries.get(which)

    _print(cli, output, run(cli, output, work))


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

    if delivery_id is not None:
        _print(cli, output, run(cli, output, lambda herd: herd.webhooks.deliveries.replay(delivery_id)))
        return
    moment = cli.clock.now() - timedelta(seconds=since or 0)
    count = run(
        cli,
        output,
        lambda herd: herd.webhooks.replay(moment, state="dead" if dead else "failed", endpoint=endpoint),
    )
    if output.for_people:
        output.note(f"{count} on their way again")
    else:
        output.json({"count": count})


def test(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="URL|ID", help="An address, or an endpoint (ep_…).")],
    as_json: JsonOption = False,
    quiet: SilentOption = False,
) -> None:
    """Send one test event now, as the endpoint gets all others; exit code 1 if it is not accepted."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    is_endpoint = target.startswith(ENDPOINT_PREFIX)
    wanted = {"endpoint": target} if is_endpoint else {"url": target}
    tried = run(cli, output, lambda herd: herd.webhooks.test(**wanted))
    if output.for_people:
        output.show(tried_line(tried))
    elif not output.silent:
        output.json(tried.raw)
    if not tried.accepted:
        raise typer.Exit(int(ExitCode.FAILED))


def _print_secret(cli: CliContext, output: Output, make: Callable[[Gpuherd], NewSecret]) -> None:
    made = run(cli, output, make)
    if not made.secret:
        _print(cli, output, made.endpoint)
        return
    secret = made.secret.reveal()
    if output.mode is Mode.IDS:
        output.ids([secret])
    elif output.for_people:
        output.show(endpoint_page(made.endpoint, cli.clock.now(), secret))
        output.note("keep the secret now: it is never shown again", "yellow")
    else:
        output.json({**made.endpoint.raw, "secret": secret})


def _print(cli: CliContext, output: Output, it: WebhookEndpoint | Delivery) -> None:
    """Print an endpoint or a delivery."""
    now = cli.clock.now()
    if not output.for_people:
        output.answer(it.raw, it.id)
    elif isinstance(it, WebhookEndpoint):
        output.show(endpoint_page(it, now))
    else:
        output.show(delivery_page(it, now))
