"""Who may ask: only pages of this server, by a name that is its own, and with its token where others can reach it."""

import contextlib
import ipaddress
import re
import secrets
import socket
from urllib.parse import parse_qs

from h11 import LocalProtocolError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A name or an IPv4 address, or an IPv6 address in brackets; then a port. No user before an @, nothing behind the port.
HOST = re.compile(r"(?:(?P<name>[a-z0-9._-]+)|\[(?P<address>[0-9a-f:.]*:[0-9a-f:.]*)\])(?::[0-9]{1,5})?")

# The page runs its own scripts and talks to its own server; nothing may frame it, and no file passes for another kind.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """Refuses requests with a forged Host, from other sites, or without the token, before anything else sees them."""

    def __init__(self, app: ASGIApp, host: str, port: int, token: str | None) -> None:
        self.app, self.host, self.token = app, host, token
        self.cookie = f"likewise-{port}"  # browsers share cookies between the ports of a machine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # nobody here speaks anything else
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self.refused(Headers(scope=scope), scope)
        # A request that turns into nonsense behind its head has been answered by uvicorn: there is nobody to answer.
        with contextlib.suppress(LocalProtocolError):
            await (refused or self.app)(scope, receive, guarded)

    def refused(self, headers: Headers, scope: Scope) -> Response | None:
        """The answer to a request that may not pass."""
        if len(headers.getlist("host")) != 1 or not self.is_own(headers["host"]):
            got = headers.get("host", "none")[:100]
            return PlainTextResponse(f"Host must be a name of this server, got {got}", 403)
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{headers['host']}", f"https://{headers['host']}"):
            return PlainTextResponse(f"only its own page may ask this server, got the origin {origin[:100]}", 403)
        if self.token is None or self.knows(headers):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and self.is_token(given):
            response = RedirectResponse("/", 303)  # so that the token does not stay in the address
            # Not strict: a link in a chat or mail leads here from another site. What changes anything asks for Origin.
            response.set_cookie(self.cookie, self.token, httponly=True, samesite="lax")
            return response
        return PlainTextResponse("a token is needed: open the address that likewise explore has printed", 401)

    def is_own(self, host: str) -> bool:
        """Whether a Host header names this server. A name that leads here by someone else's doing does not."""
        parts = HOST.fullmatch(host.lower())
        if parts is None:
            return False
        name = parts["name"] or parts["address"]
        if is_loopback(self.host):
            return name == self.host or is_loopback(name)
        if name in (self.host, "localhost", socket.gethostname().lower()):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True  # addresses cannot be made to lead elsewhere

    def knows(self, headers: Headers) -> bool:
        """Whether the token came with the request, as a cookie or for programs as a bearer's."""
        kept = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        return self.is_token(kept) or (scheme == "Bearer" and self.is_token(bearer))

    def is_token(self, given: str) -> bool:
        return self.token is not None and secrets.compare_digest(given.encode(), self.token.encode())
