"""`gpuherd config`: every setting in force, where its value comes from, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from gpuherd.entrypoints.cli.render.output import JsonOption, Output, safe
from gpuherd.entrypoints.cli.render.tables import Column, table

UNSET = "-"


@dataclass(frozen=True)
class Setting:
    """One setting, fit for everybody's eyes: where it is a secret, the value is blotted out already."""

    name: str
    value: str | None
    source: str
    meaning: str
    is_default: bool
    is_secret: bool


@dataclass(frozen=True)
class Configuration:
    """All of them, and the file that may hold some."""

    file: Path
    file_exists: bool
    settings: Sequence[Setting]


def config_command(read: Callable[[], Configuration]) -> Mapping[str, Callable[..., None]]:
    """Return `gpuherd config`."""

    def config(as_json: JsonOption = False) -> None:
        """Show every setting: its value, where it comes from, what it means. Secrets are shown as ***."""
        output = Output.for_command(as_json=as_json)
        found = read()
        if not output.for_people:
            output.json(_as_json(found))
            return
        output.show(_table(found.settings, output.out.width))
        there = "" if found.file_exists else ", which is not there"
        output.note(f"Each may be set in the environment, or else in {safe(found.file)}{there}.", "dim")

    return {"config": config}


def _as_json(found: Configuration) -> dict[str, object]:
    return {
        "file": str(found.file),
        "fileExists": found.file_exists,
        "settings": [
            {
                "name": it.name,
                "value": it.value,
                "source": it.source,
                "secret": it.is_secret,
                "meaning": it.meaning,
            }
            for it in found.settings
        ],
    }


def _table(settings: Sequence[Setting], width: int) -> Table:
    columns: list[Column[Setting]] = [
        Column("SETTING", lambda s: s.name, 0),
        Column("VALUE", lambda s: s.value or UNSET, 0, shrinks_to=30, wraps=True, style=_style),
        Column("FROM", lambda s: s.source, 1, style=_style),
        Column("MEANING", lambda s: s.meaning, 2, shrinks_to=20, wraps=True),
    ]
    return table(columns, settings, width)


def _style(setting: Setting) -> str:
    return "dim" if setting.is_default else "green"
