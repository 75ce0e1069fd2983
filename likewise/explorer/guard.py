"""Reject requests that do not come from the server's own page.

The Host header must name this server, the Origin must be its own page, and if other machines can reach the server, the
request must carry its token.
"""

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

# A name, an IPv4 address or an IPv6 address in brackets, then a port. Neither a user before an @ nor a path is allowed.
HOST = re.compile(r"(?:(?P<name>[a-z0-9._-]+)|\[(?P<address>[0-9a-f:.]*:[0-9a-f:.]*)\])(?::[0-9]{1,5})?")

# The page may only run its own scripts and talk to its own server, other sites may not embed it in a frame, and
# browsers must not guess the type of a file.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """Middleware that rejects requests with a forged Host, from other sites, or without the token."""

    def __init__(self, app: ASGIApp, host: str, port: int, token: str | None) -> None:
        self.app, self.host, self.token = app, host, token
        self.cookie = f"likewise-{port}"  # with the port, because browsers share cookies between the ports of a machine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no websockets here
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self.refused(Headers(scope=scope), scope)
        # If the body of a request is malformed, uvicorn has already answered, and sending another answer raises this.
        with contextlib.suppress(LocalProtocolError):
            await (refused or self.app)(scope, receive, guarded)

    def refused(self, headers: Headers, scope: Scope) -> Response | None:
        """Return the error response to a request that is rejected, or None if it may pass."""
        if len(headers.getlist("host")) != 1 or not self.is_own(headers["host"]):
            got = headers.get("host", "none")[:100]
            return PlainTextResponse(f"Host must be a name of this server, got {got}", 403)
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{headers['host']}", f"https://{headers['host']}"):
            return PlainTextResponse(f"Origin must be this server's own page, got {origin[:100]}", 403)
        if self.token is None or self.knows(headers):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and self.is_token(given):
            response = RedirectResponse("/", 303)  # so that the token does not stay in the address bar
            # Not strict, because a link in a chat or a mail comes from another site. POST requests carry an Origin.
            response.set_cookie(self.cookie, self.token, httponly=True, samesite="lax")
            return response
        return PlainTextResponse("a token is needed: open the address that likewise explore printed", 401)

    def is_own(self, host: str) -> bool:
        """Return whether a Host header names this server, and not a foreign name that resolves to this machine."""
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
        return True  # unlike a name, an address cannot be redirected to this server by somebody else

    def knows(self, headers: Headers) -> bool:
        """Return whether the request carries the token, as a cookie or, from programs, as a bearer token."""
        cookie = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        return self.is_token(cookie) or (scheme == "Bearer" and self.is_token(bearer))

    def is_token(self, given: str) -> bool:
        return self.token is not None and secrets.compare_digest(given.encode(), self.token.encode())
