"""What people type into fields, as the API takes it; what makes no sense it may complain about itself."""

from __future__ import annotations


def typed_number(text: str) -> int | str:
    """Return a whole number, or the text if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else text


def typed_pairs(text: str) -> dict[str, str]:
    """Read `team=vision, run=7`."""
    pairs = (part.strip().partition("=") for part in text.replace("\n", ",").split(",") if part.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def typed_list(text: str) -> list[str]:
    """Read `RTX 4090 24GB, H100`: what has blanks inside is parted by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def typed_ports(text: str) -> list[str]:
    """Read `8000/http, 22/tcp`."""
    return text.replace(",", " ").split()


def typed_mounts(text: str) -> list[dict[str, str]]:
    """Read `ID:/data, ID:/models`."""
    pairs = (word.partition(":") for word in text.replace(",", " ").split())
    return [{"id": volume_id, "mountPath": path} for volume_id, _, path in pairs]


def typed_envs(text: str) -> dict[str, str]:
    """Read one `NAME=VALUE` a line."""
    pairs = (line.partition("=") for line in text.splitlines() if line.strip())
    return {name.strip(): value for name, _, value in pairs}
