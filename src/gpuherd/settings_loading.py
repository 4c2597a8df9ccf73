"""Find the server and its key without loading the other settings, so that commands start fast."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SETTINGS_FILE = "gpuherd.toml"
ADMIN_KEY_NAME = "admin.key"
DEFAULT_DATA_DIR = "~/.local/share/gpuherd"
DEFAULT_PORTS = {"http": 80, "https": 443}
_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]+")


class AddressInvalid(Exception):
    """The settings give no usable address or key. The message contains no secret."""


@dataclass(frozen=True)
class ServerAddress:
    """A server and its API key. The repr does not show the key."""

    scheme: str
    host: str
    port: int
    # A path prefix that a proxy adds.
    prefix: str
    key: str | None = field(repr=False)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.prefix}"

    @property
    def headers(self) -> dict[str, str]:
        """Return the header that authenticates a request."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}


def find_server_address(
    url: str | None = None,
    key: str | None = None,
    environ: Mapping[str, str] | None = None,
    settings_file: Path | None = None,
) -> ServerAddress:
    """Return the server from the arguments, the environment, the file, or this machine, in this order.

    The stored admin key is used only for the server on this machine, never for another named server.
    """
    environ = os.environ if environ is None else environ
    file = {} if settings_file is None else _read_settings_file(settings_file)

    def setting(name: str) -> str | None:
        value = environ[name] if name in environ else file.get(name)
        return str(value) if value is not None and str(value).strip() else None

    named = url or setting("GPUHERD_URL")
    given = key or setting("GPUHERD_API_KEY") or setting("GPUHERD_ADMIN_KEY")
    if given is None and named is None:
        given = _stored_admin_key(Path(setting("GPUHERD_DATA_DIR") or DEFAULT_DATA_DIR).expanduser())
    if named is None:
        host = setting("GPUHERD_HOST") or "127.0.0.1"
        named = f"http://{f'[{host}]' if ':' in host else host}:{setting('GPUHERD_PORT') or 8080}"
    return parse_server_address(named, given)


def parse_server_address(url: str, key: str | None) -> ServerAddress:
    """Return the server at `url` with its key, or raise `AddressInvalid`."""
    invalid = AddressInvalid("GPUHERD_URL must look like http://127.0.0.1:8080")
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        raise invalid from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.query or parts.fragment:
        raise invalid
    if parts.username is not None or parts.password is not None:
        # Error messages would show the password, and beside the key it has no meaning.
        raise AddressInvalid("GPUHERD_URL must not contain a user or a password; use GPUHERD_API_KEY")
    if key is not None and not _VISIBLE_ASCII.fullmatch(key):
        raise AddressInvalid("GPUHERD_API_KEY must be one word of visible ASCII characters")
    return ServerAddress(parts.scheme, parts.hostname, port, parts.path.rstrip("/"), key)


def _read_settings_file(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    # Most users have no such file.
    import tomllib  # noqa: PLC0415

    try:
        return {name.upper(): value for name, value in tomllib.loads(path.read_text()).items()}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise AddressInvalid(f"{SETTINGS_FILE}: cannot be read ({type(error).__name__})") from None


def _stored_admin_key(directory: Path) -> str | None:
    path = directory / ADMIN_KEY_NAME
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise AddressInvalid(f"{path} can be read by others; run: chmod 600 {path}")
        return path.read_text().strip() or None
    except OSError:
        return None
