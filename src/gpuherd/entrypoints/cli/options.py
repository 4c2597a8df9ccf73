"""Options that several commands share, with what makes sense of their values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from gpuherd.entrypoints.cli.times import parse_duration


def _duration(value: object) -> float:
    try:
        return parse_duration(str(value))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _usd(value: object) -> Decimal:
    try:
        amount = Decimal(str(value).strip().removeprefix("$"))
    except InvalidOperation:
        amount = Decimal(0)
    if not amount.is_finite() or amount <= 0:
        raise typer.BadParameter("give US dollars an hour, like 0.40")
    return amount


def _name_or_id(value: str) -> str:
    if not value.strip():
        raise typer.BadParameter("give a name or an id")
    return value


def _key(value: object) -> str:
    if not KEY.fullmatch(str(value)):
        raise typer.BadParameter("1 to 255 visible ASCII characters")
    return str(value)


# The server's own rule; here it also keeps line breaks out of the header.
KEY = re.compile(r"[\x21-\x7e]{1,255}")

IdempotencyKey = Annotated[
    str | None,
    typer.Option(parser=_key, metavar="KEY", help="Say the same key again and it is the same instance."),
]
Timeout = Annotated[
    float,
    typer.Option(
        parser=_duration, metavar="DURATION", show_default="30m", help="How long to wait: 90, 90s, 20m, 1h."
    ),
]
MaxPrice = Annotated[
    Decimal | None,
    typer.Option(parser=_usd, metavar="USD", help="The most that the whole instance may cost an hour."),
]
Labels = Annotated[list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="May be given often.")]
NameOrId = Annotated[str, typer.Argument(metavar="NAME_OR_ID", callback=_name_or_id, help="Which instance.")]


def labels_of(words: Sequence[str] | None) -> dict[str, str]:
    """Return the labels that were written as key=value."""
    labels = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{word!r} is not KEY=VALUE", param_hint="--label")
        labels[key.strip()] = value
    return labels
