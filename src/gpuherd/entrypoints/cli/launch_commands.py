"""The commands that rent: plan shows what would be rented, up rents and follows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gpuherd.entrypoints.cli.cli_errors import (
    NO_CAPACITY_CODES,
    CommandError,
    ErrorReport,
    detail_of,
    problem_report,
    unknown_outcome,
)
from gpuherd.entrypoints.cli.cli_output import (
    Column,
    CommandClock,
    Output,
    Row,
    amount_of,
    foldable,
    moment_of,
    safe,
    table_of,
    usd,
    usd_an_hour,
)
from gpuherd.entrypoints.cli.command_runner import (
    TIMEOUT_OPTION,
    command_context,
    confirm_or_exit,
    detaches_by_interrupt,
    is_interactive,
    server_command,
)
from gpuherd.entrypoints.cli.instance_facts import command_about, facts_of, stock_of, variables_text
from gpuherd.entrypoints.cli.launch_options import (
    LAUNCH_OPTIONS,
    gpu_option,
    launch_body_of,
    require_gpu_and_template,
)
from gpuherd.entrypoints.cli.rental_stages import Progress
from gpuherd.entrypoints.cli.server_connection import ServerConnection
from gpuherd.entrypoints.cli.server_replies import ServerRefusal, ServerReply, ServerUnreachable
from gpuherd.entrypoints.durations import remaining_time, rough_duration

# The server waits for the cloud's catalogue before it answers a plan.
PLAN_TIMEOUT_S = 60.0
# A create without an answer is repeated once a second.
RETRY_INTERVAL_S = 1.0
HOURS_A_DAY = 24
NEXT_OFFERS_MAX = 3
# The codes of a server that is too old for plans.
NO_PLANS = frozenset({"NOT_FOUND", "METHOD_NOT_ALLOWED"})
# HTTP's status for a conflict; the code says more.
CONFLICT_STATUS = 409
# The server's own rule for an Idempotency-Key. It keeps line breaks out of the header.
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_TEMPLATE_WORDS = {
    "imageUrl": "image",
    "minCudaVersion": "CUDA version",
    "registryAuthId": "credential",
    "envs": "variables",
}


def _checked_key(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _KEY.fullmatch(value):
        raise click.BadParameter("1 to 255 visible ASCII characters")
    return value


@server_command(
    "plan",
    gpu_option(required=False),
    *LAUNCH_OPTIONS,
    click.option(
        "--hold", is_flag=True, help="Hold it for ten minutes, to rent it with up --plan: never for more."
    ),
)
def plan(server: ServerConnection, output: Output, hold: bool, **values: Any) -> None:
    """Show what `up` would rent, in which order and for how much. Nothing is rented."""
    require_gpu_and_template(output, values)
    body = launch_body_of(values)
    planned = request_plan(server, body | {"hold": True} if hold else body)
    if output.for_people:
        output.show(*_full_plan(planned, output))
    else:
        output.json(planned)
    if (obstacle := _obstacle(planned)) is not None:
        raise click.exceptions.Exit(int(obstacle.exit_code))


@server_command(
    "up",
    gpu_option(required=False),
    *LAUNCH_OPTIONS[:8],
    click.option("--plan", help="Rent the plan with this id (plan --hold), instead of what is said here."),
    *LAUNCH_OPTIONS[8:],
    click.option("--yes", "-y", is_flag=True, help="Do not show the plan, do not ask."),
    click.option("--no-wait", is_flag=True, help="Return as soon as it is accepted."),
    TIMEOUT_OPTION,
    click.option(
        "--idempotency-key",
        metavar="KEY",
        callback=_checked_key,
        help="Say the same key again and it is the same instance.",
    ),
    ids=True,
)
def up(
    server: ServerConnection,
    output: Output,
    plan: str | None,
    yes: bool,
    no_wait: bool,
    timeout: float,
    idempotency_key: str | None,
    **values: Any,
) -> None:
    """Rent an instance and follow it until it can be used. Ctrl-C detaches; the work goes on."""
    rng = command_context().rng
    body = launch_body_of(values)
    if plan is not None:
        if body:
            raise click.BadParameter("what is rented was said when it was planned", param_hint="--plan")
        body, key = {"planId": plan}, idempotency_key or plan
    else:
        require_gpu_and_template(output, values, or_plan=True)
        if "name" not in body:
            body = {"name": new_name(values["gpu"][0], rng), **body}
        if not yes and output.for_people and is_interactive():
            confirm_plan(server, output, body)
        key = idempotency_key or new_key(rng)
    unanswered = (
        "interrupted before the server answered; it may have been accepted: look with gpuherd ls, "
        f"or repeat the command with --idempotency-key {safe(key)}"
    )
    clock = output.clock
    if no_wait:
        deadline = clock.monotonic() + timeout
        with detaches_by_interrupt(output, lambda: unanswered):
            instance = create_instance(server, clock, body, key, deadline)
        _print_accepted(output, instance)
        return
    # The client loads asyncio, aiohttp and pydantic, which a plan does not need.
    from gpuherd.entrypoints.cli.rental_progress import InstanceFollower  # noqa: PLC0415

    follower = InstanceFollower(server, output, timeout, unanswered=unanswered)
    with detaches_by_interrupt(output, follower.farewell):
        instance = follower.follow(
            lambda lost: Progress(create_instance(server, clock, body, key, follower.deadline, lost))
        )
    _warn_if_endless(output, instance)


def request_plan(server: ServerConnection, body: Mapping[str, Any]) -> ServerReply:
    """Return what a create with this body would try; nothing is rented."""
    planned = server.post("/api/plans", body, timeout_s=PLAN_TIMEOUT_S)
    for name in ("fits", "offers"):
        # An answer without them is no plan.
        planned[name]
    return planned


def create_instance(
    server: ServerConnection,
    clock: CommandClock,
    body: Mapping[str, Any],
    key: str,
    deadline: float,
    on_lost: Callable[[str], None] = lambda _: None,
) -> Row:
    """Create an instance.

    After a lost answer, repeat the create under the same key, which never rents twice.
    """
    lost: ServerUnreachable | None = None
    while True:
        try:
            made = server.post("/api/instances", body, idempotency_key=key)
            break
        except ServerUnreachable as failure:
            # Nothing was ever sent, so certainly nothing happened.
            if not (failure.sent or lost):
                raise
            lost = failure
        except ServerRefusal as refusal:
            # "Not now" for the second request proves nothing about the first.
            if lost is None or not refusal.is_temporary:
                raise
        if clock.monotonic() + RETRY_INTERVAL_S >= deadline:
            advice = f"repeat the same command with --idempotency-key {key}: it never rents twice"
            raise unknown_outcome(lost, advice) from lost
        on_lost(detail_of(lost))
        clock.pause(RETRY_INTERVAL_S)
    for name in ("id", "name", "status"):
        # An answer without them is no instance.
        made[name]
    # The answer is short; the request has the other fields.
    products = body.get("productNames") or [body.get("productName")]
    asked = {
        "name": body.get("name"),
        "productName": products[0],
        "gpuNum": body.get("gpuNum"),
        "billingMode": body.get("billingMode"),
    }
    return {**{field: value for field, value in asked.items() if value is not None}, **made}


def new_name(product_name: str, rng: Random) -> str:
    """Return a name for an instance whose user gave none: `rtx-4090-3f2a`."""
    slug = re.sub(r"[^a-z0-9]+", "-", product_name.casefold()).strip("-")[:40].strip("-")
    return f"{slug or 'gpu'}-{rng.getrandbits(16):04x}"


def new_key(rng: Random) -> str:
    """Return an Idempotency-Key that no other create has."""
    return f"cli-{rng.getrandbits(128):032x}"


def confirm_plan(server: ServerConnection, output: Output, body: Mapping[str, Any]) -> None:
    """Show what would be rented, and return only if the user agrees. Reject what cannot be rented."""
    planned: Row | None = None
    try:
        planned = request_plan(server, body)
    except ServerRefusal as refusal:
        if not (refusal.is_temporary or refusal.code in NO_PLANS):
            raise
        # The server may still accept the create and wait for the cloud.
        output.note(f"no plan can be made now: {safe(detail_of(refusal))}", "yellow")
    question = "Order it all the same?"
    if planned is not None:
        obstacle = _obstacle(planned)
        if obstacle is not None and not _only_waits(planned):
            raise CommandError.of(obstacle)
        output.show(*_short_plan(planned))
        question = "Rent it?" if planned["fits"] else "Order it, and wait for an offer?"
    confirm_or_exit(output, question, "nothing was rented")


def _obstacle(planned: Row) -> ErrorReport | None:
    """Return why a create would be rejected; None if it fits."""
    reasons = planned.get("reasons")
    if planned["fits"] or not reasons:
        return None
    first = reasons[0]
    return problem_report(
        str(first["code"]),
        "it cannot be rented",
        str(first.get("message") or ""),
        CONFLICT_STATUS,
        first.get("details") or {},
    )


def _only_waits(planned: Row) -> bool:
    """Return True if the server would accept the create and wait for an offer."""
    codes = {reason["code"] for reason in planned["reasons"]}
    waits = planned.get("waitForCapacity") is not None or bool(planned.get("fallbackAfterSeconds"))
    return waits and codes <= NO_CAPACITY_CODES


def _print_accepted(output: Output, instance: Row) -> None:
    if not output.for_people:
        output.answer(instance, str(instance["id"]))
        return
    expected = moment_of(instance.get("estimatedReadyTime"))
    left = f", {remaining_time(expected, output.clock.now())}" if expected else ""
    output.line(f"{safe(instance['name'])} is accepted as {safe(instance['id'])}{left}")
    output.note(f"follow it with: {command_about('wait', instance)}")


def _warn_if_endless(output: Output, instance: Row) -> None:
    """Warn about the daily cost of an instance without an end."""
    hourly = amount_of(instance.get("hourlyPrice"))
    has_end = instance.get("lease") or instance.get("autoStop")
    if not output.for_people or has_end or hourly is None or not instance.get("usable"):
        return
    output.note(
        f"No lease is set. This instance costs {usd(hourly * HOURS_A_DAY)} per day until you stop it."
    )
    output.note(f"set one with: {command_about('lease', instance)} +8h")


# --- what people see of a plan ---


def _full_plan(planned: Row, output: Output) -> Iterator[RenderableType]:
    """Yield everything: the offers, the rejected ones with reasons, and remarks."""
    offers, refused = planned["offers"], planned.get("refused")
    if offers:
        yield _offer_table(planned, output)
    if refused:
        if offers:
            yield Text()
        yield table_of(_REFUSED_COLUMNS, refused, output.out.width, output.clock.now())
    for region in planned.get("regionsWithoutOffer") or ():
        yield foldable(f"{region['region']}: {region.get('reason')}", "dim")
    yield Text()
    if planned["fits"]:
        yield foldable(f"{_best(planned)}, {_ready(planned)}")
        yield from _disk(planned)
        yield from _workload(planned)
    else:
        for reason in planned.get("reasons") or ():
            yield foldable(f"{reason.get('message')} ({reason['code']})", "red")
    yield from _warnings(planned)
    if planned.get("planId") is not None and (expires := moment_of(planned.get("expiresAt"))):
        price = usd_an_hour(planned.get("heldHourlyPrice"))
        yield foldable(f"held until {expires:%H:%M:%S} UTC, for at most {price}; rent it with:")
        yield foldable(f"gpuherd up --plan {planned['planId']}", "bold")


def _short_plan(planned: Row) -> Iterator[RenderableType]:
    """Yield the best offer, its expected time to ready, and the next offer."""
    offers = planned["offers"]
    if offers:
        yield foldable(_best(planned), "bold")
        yield from _disk(planned)
        yield from _workload(planned)
        yield foldable(_ready(planned))
    else:
        yield from (foldable(reason.get("message")) for reason in planned.get("reasons") or ())
    if offers[1:]:
        following = offers[1 : 1 + NEXT_OFFERS_MAX]
        words = ", ".join(f"{offer['region']} {usd_an_hour(offer.get('hourlyPrice'))}" for offer in following)
        left = len(offers) - 1 - len(following)
        yield foldable(f"if that is gone: {words}" + (f" and {left} more" if left else ""), "dim")
    yield from _warnings(planned)


def _best(planned: Row) -> str:
    if not planned["offers"]:
        return ""
    how = {name: planned.get(name) for name in ("gpuNum", "billingMode")}
    return " · ".join(facts_of({**planned["offers"][0], **how}))


def _disk(planned: Row) -> Iterator[Text]:
    if amount_of(planned.get("diskHourlyPrice")):
        price = usd_an_hour(planned["diskHourlyPrice"])
        yield foldable(f"{price} of it for {planned.get('rootfsSize')} GB of disk, also while it is stopped")


def _workload(planned: Row) -> Iterator[Text]:
    """Yield what would run; only the names of variables."""
    get = planned.get
    if not get("imageUrl"):
        return
    yield foldable(f"runs {get('imageUrl')}" + (f": {get('command')}" if get("command") else ""))
    volumes = [f"{volume.get('id')} at {volume.get('mountPath')}" for volume in get("volumes") or ()]
    lines = (
        ("ports", ", ".join(get("ports") or ())),
        ("variables", variables_text(get("envs"))),
        ("CUDA", f"{get('minCudaVersion')} or newer" if get("minCudaVersion") else ""),
        ("pulled with", get("registryAuthId")),
        ("volumes", ", ".join(volumes)),
    )
    yield from (foldable(f"{name}: {words}", "dim") for name, words in lines if words)
    for name, value in (get("insteadOf") or {}).items():
        words = value if isinstance(value, str) else ", ".join(value)
        yield foldable(f"instead of the template's {_TEMPLATE_WORDS.get(name, name)}: {words}", "dim")


def _ready(planned: Row) -> str:
    seconds = planned.get("estimatedReadyInSeconds")
    if seconds is None:
        return "nobody knows when it would be ready"
    rentals = (planned.get("estimateBasis") or {}).get("rentals")
    basis = f"{rentals} earlier rentals" if rentals else "a first guess"
    return f"ready in about {rough_duration(seconds)} ({basis})"


def _warnings(planned: Row) -> Iterator[Text]:
    yield from (foldable(f"note: {words}", "yellow") for words in planned.get("warnings") or ())


def _offer_table(planned: Row, output: Output) -> Table:
    seconds = planned.get("estimatedReadyInSeconds")
    ready = "" if seconds is None else f"~{rough_duration(seconds)}"
    columns: Sequence[Column] = [
        Column("#", "rank", 0, right=True),
        Column("GPU", "productName", 3, shrinks_to=10),
        Column("REGION", "region", 1),
        Column("PRICE", lambda row: usd_an_hour(row.get("hourlyPrice")), 2, right=True),
        Column("STOCK", stock_of, 4),
        Column("READY IN", lambda _: ready, 5, right=True),
        Column("CPU", "cpu", 7, right=True),
        Column(
            "MEMORY",
            lambda row: f"{row['memory']} GB" if row.get("memory") is not None else "",
            6,
            right=True,
        ),
    ]
    return table_of(columns, planned["offers"], output.out.width, output.clock.now())


def _dim(_: Row) -> str:
    return "dim"


_REFUSED_COLUMNS = (
    Column("NOT TRIED", "productName", 3, shrinks_to=10, style=_dim),
    Column("REGION", "region", 1, style=_dim),
    Column("PRICE", lambda row: usd_an_hour(row.get("hourlyPrice")), 2, right=True, style=_dim),
    Column("WHY NOT", "reason", 0, shrinks_to=16, wraps=True, style=_dim),
)
