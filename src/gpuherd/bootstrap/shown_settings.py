"""The settings of a running server, for the dashboard: what `gpuherd config` shows, secrets blotted out."""

from __future__ import annotations

from gpuherd.entrypoints.plane import ShownSetting
from gpuherd.settings import Settings


def shown_settings(settings: Settings) -> tuple[ShownSetting, ...]:
    """Return the name, the value and the meaning of each setting in force."""
    # It brings the tables of the command line along, for which no server shall wait at its start.
    from gpuherd.bootstrap.configuration import MEANINGS, in_force, shown_value  # noqa: PLC0415

    fields = {str(info.validation_alias): name for name, info in Settings.model_fields.items()}
    ordered = [*(name for name in MEANINGS if name in fields), *sorted(set(fields) - set(MEANINGS))]
    return tuple(
        ShownSetting(name, shown_value(in_force(settings, fields[name])) or "", MEANINGS.get(name, ""))
        for name in ordered
    )
