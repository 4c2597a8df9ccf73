"""The settings page shows no secret."""

from __future__ import annotations

from gpuherd.bootstrap.rules_from_settings import shown_settings
from gpuherd.settings import load_settings

SECRETS = {
    "NOVITA_API_KEY": "sk_canary_one",
    "WEBHOOK_SECRET": "canary-two-canary-two",
    "GPUHERD_ADMIN_KEY": "canary-three-canary",
    "GPUHERD_DATABASE_URL": "postgresql://anna:canary-four@db.example/herd?password=canary-five",
}


def test_settings_are_shown_without_anything_secret() -> None:
    shown = shown_settings(load_settings(SECRETS))
    assert "canary" not in str(shown)
    by_name = {it.name: it.value for it in shown}
    assert by_name["NOVITA_API_KEY"] == "***"
    assert by_name["GPUHERD_PORT"] == "8080"
    assert by_name["GPUHERD_API_KEY"] == ""
    assert "db.example/herd" in by_name["GPUHERD_DATABASE_URL"]
