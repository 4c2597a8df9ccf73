"""Where the server is and who we are: as told, as the environment says, or the server on this machine."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gpuherd.client.errors import BadConfiguration
from gpuherd.domain.access.secret import Secret

DEFAULT_PORTS = {"http": 80, "https": 443}
DATA_DIR = "~/.local/share/gpuherd"
ADMIN_KEY_FILE = "admin.key"
_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class Address:
    """A server, and the key that opens it. The key shows up nowhere."""

    scheme: str
    host: str
    port: int
    # What a proxy has put before our paths.
    prefix: str
    key: Secret | None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.prefix}"

    @property
    def headers(self) -> dict[str, str]:
        """Return the authentication headers; made for each request and kept nowhere."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key.reveal()}"}


def find_server(
    url: str | None = None, key: str | Secret | None = None, environ: Mapping[str, str] | None = None
) -> Address:
    """Return the server that is meant."""
    environ = os.environ if environ is None else environ
    named = url or environ.get("GPUHERD_URL") or None
    given = key or environ.get("GPUHERD_API_KEY") or environ.get("GPUHERD_ADMIN_KEY") or None
    if given is None and named is None:
        # Only for the server on this machine: another one would be told our admin key.
        given = _stored(Path(environ.get("GPUHERD_DATA_DIR") or DATA_DIR).expanduser())
    return address_of(named or _local(environ), given)


def _local(environ: Mapping[str, str]) -> str:
    host = environ.get("GPUHERD_HOST") or "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{environ.get('GPUHERD_PORT') or 8080}"


def address_of(url: str, key: str | Secret | None) -> Address:
    """Return the server at `url` with the key that opens it, or raise `BadConfiguration`."""
    odd = BadConfiguration("GPUHERD_URL must look like http://127.0.0.1:8080")
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        raise odd from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.query or parts.fragment:
        raise odd
    if parts.username is not None or parts.password is not None:
        # It would be shown with every failure, and beside the key it has no meaning.
        raise BadConfiguration("GPUHERD_URL must not contain a user or a password; use GPUHERD_API_KEY")
    return Address(parts.scheme, parts.hostname, port, parts.path.rstrip("/"), _checked(key))


def _checked(key: str | Secret | None) -> Secret | None:
    if key is None:
        return None
    secret = key if isinstance(key, Secret) else Secret(key)
    if not _VISIBLE_ASCII.fullmatch(secret.reveal()):
        raise BadConfiguration("GPUHERD_API_KEY must be one word of visible ASCII characters")
    return secret


def _stored(directory: Path) -> str | None:
    path = directory / ADMIN_KEY_FILE
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise BadConfiguration(f"{path} can be read by others; run: chmod 600 {path}")
        return path.read_text().strip() or None
    except OSError:
        return None
