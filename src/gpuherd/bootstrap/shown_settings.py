"""The settings of a running server, for the dashboard: what `gpuherd config` shows, secrets redacted."""

from __future__ import annotations

from gpuherd.bootstrap.setting_values import SETTING_MEANINGS, effective_value, setting_fields, shown_value
from gpuherd.entrypoints.plane import ShownSetting
from gpuherd.settings import Settings


def shown_settings(settings: Settings) -> tuple[ShownSetting, ...]:
    """Return the name, the value and the meaning of each setting in force."""
    return tuple(
        ShownSetting(
            name, shown_value(effective_value(settings, field)) or "", SETTING_MEANINGS.get(name, "")
        )
        for name, field in setting_fields().items()
    )
