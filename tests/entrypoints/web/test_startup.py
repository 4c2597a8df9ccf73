"""What the dashboard costs those who do not look at it, and what its settings page keeps to itself."""

from __future__ import annotations

import subprocess
import sys

from gpuherd.bootstrap.rules_from_settings import shown_settings
from gpuherd.settings import load_settings

SECRETS = {
    "NOVITA_API_KEY": "sk_canary_one",
    "WEBHOOK_SECRET": "canary-two-canary-two",
    "GPUHERD_ADMIN_KEY": "canary-three-canary",
    "GPUHERD_DATABASE_URL": "postgresql://anna:canary-four@db.example/herd?password=canary-five",
}


def test_no_server_waits_for_templates_at_its_start() -> None:
    code = "import sys, gpuherd.bootstrap.http_server; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_settings_are_shown_without_anything_secret() -> None:
    shown = shown_settings(load_settings(SECRETS))
    assert "canary" not in str(shown)
    by_name = {it.name: it.value for it in shown}
    assert by_name["NOVITA_API_KEY"] == "***"
    assert by_name["GPUHERD_PORT"] == "8080"
    assert by_name["GPUHERD_API_KEY"] == ""
    assert "db.example/herd" in by_name["GPUHERD_DATABASE_URL"]
