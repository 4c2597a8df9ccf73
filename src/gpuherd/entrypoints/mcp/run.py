"""`gpuherd mcp`: over the standard streams for one user, or over HTTP for whoever brings a key."""

from __future__ import annotations

from decimal import Decimal

import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette

from gpuherd.client import AsyncGpuherd, Unauthorized
from gpuherd.client.client_errors import BadConfiguration
from gpuherd.client.server_address import Address, address_of
from gpuherd.entrypoints.mcp.server import build_server
from gpuherd.entrypoints.mcp.session import AgentSession

# What each scope of a key includes.
SCOPES = {"read": ["read"], "write": ["read", "write"], "admin": ["read", "write", "admin"]}


def run_stdio(address: Address, *, read_only: bool, ask_above_usd: Decimal) -> None:
    """Serve one client, until it closes the streams."""
    session = AgentSession(lambda: AsyncGpuherd(address), read_only, ask_above_usd)
    build_server(session).run("stdio")


def run_http(address: Address, host: str, port: int, *, read_only: bool, ask_above_usd: Decimal) -> None:
    """Serve whoever brings a key that the server knows. Our own key, if there is one, is not used."""
    app = http_app(address, host, port, read_only=read_only, ask_above_usd=ask_above_usd)
    # Requests carry keys, and their addresses nothing of interest.
    uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False)


def http_app(address: Address, host: str, port: int, *, read_only: bool, ask_above_usd: Decimal) -> Starlette:
    """Return the application: each call is made with the key that came with it."""

    def connect() -> AsyncGpuherd:
        token = get_access_token()
        assert token is not None, "nobody comes here without a key"
        return AsyncGpuherd(address_of(address.url, token.token))

    session = AgentSession(connect, read_only, ask_above_usd)
    auth = AuthSettings(
        # Keys are made by gpuherd, not by an authorization server: there is nothing to discover.
        issuer_url=AnyHttpUrl(address.url),
        resource_server_url=None,
        required_scopes=["read"],
    )
    server = build_server(session, auth=auth, token_verifier=KeyVerifier(address))
    names = {host, "127.0.0.1", "localhost"}
    # A page in a browser may know our address, but not send another name than its own.
    security = TransportSecuritySettings(allowed_hosts=[f"{it}:{port}" for it in sorted(names)])
    return server.streamable_http_app(transport_security=security, host=host)


class KeyVerifier:
    """Asks the server about a key, at each request: one that was revoked is not let in any more."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            async with AsyncGpuherd(address_of(self._address.url, token)) as herd:
                own = await herd.keys.own()
        except (Unauthorized, BadConfiguration):
            return None
        scopes = sorted({it for scope in own.scopes for it in SCOPES.get(scope, [])})
        return AccessToken(token=token, client_id=own.id, scopes=scopes, subject=own.id)
