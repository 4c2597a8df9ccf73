"""`gpuherd config`: every setting with its value, where it comes from, and what it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuherd.bootstrap.rules_from_settings import (
    SETTING_MEANINGS,
    effective_value,
    setting_fields,
    shown_value,
)
from gpuherd.settings import FILE_NAME, Settings, SettingSource, load_settings, sources_of


@dataclass(frozen=True)
class Setting:
    """One setting, safe to show: the value of a secret is already hidden."""

    name: str
    value: str | None
    source: str
    meaning: str
    is_default: bool
    is_secret: bool


@dataclass(frozen=True)
class Configuration:
    """All settings, and the file that may hold some."""

    file: Path
    file_exists: bool
    settings: Sequence[Setting]


def configuration(environ: Mapping[str, str] | None = None, directory: Path | None = None) -> Configuration:
    """Return all settings; `SettingsInvalid` with every problem if they cannot be used."""
    settings, sources = load_settings(environ, directory), sources_of(environ, directory)
    file = (directory or Path.cwd()) / FILE_NAME
    return Configuration(
        file,
        file.exists(),
        [
            Setting(
                name,
                shown_value(effective_value(settings, field)),
                sources[name].value,
                SETTING_MEANINGS.get(name, ""),
                is_default=sources[name] is SettingSource.DEFAULT,
                is_secret="Secret" in str(Settings.model_fields[field].annotation),
            )
            for name, field in setting_fields().items()
        ],
    )
