"""The few files that pages need, each under an address that holds its hash: kept by browsers for ever."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.errors import NotFound
from gpuherd.entrypoints.web.routes import Routes

DIRECTORY = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class StaticFile:
    """One file as it is served."""

    body: bytes
    media_type: str
    digest: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Return all files by name. What is not in here cannot be asked for, however its path is written."""
    found = {}
    for path in sorted(DIRECTORY.iterdir()):
        if media_type := TYPES.get(path.suffix):
            body = path.read_bytes()
            found[path.name] = StaticFile(body, media_type, hashlib.sha256(body).hexdigest()[:16])
    return found


def static_url(name: str) -> str:
    """Return the address of a file, which changes when the file does."""
    return f"/static/{static_files()[name].digest}/{name}"


async def serve(request: Request) -> Response:
    """Send a file; an address with another hash was made for a file that we do not have."""
    file = static_files().get(request.path_params["name"])
    if file is None or file.digest != request.path_params["digest"]:
        raise NotFound("there is no such file")
    return Response(file.body, media_type=file.media_type, headers={"Cache-Control": FOREVER})


ROUTES: Routes = {("GET", "/static/{digest}/{name}"): serve}
