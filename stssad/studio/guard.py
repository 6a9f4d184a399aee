"""Who may ask, and what a response may do: this machine's own browser with the token alone.

A page from elsewhere that makes the browser ask us has another Origin, no token (the cookie is
SameSite=Strict) and can't set our header. Other names of this machine are refused before, by
Starlette's TrustedHostMiddleware.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlencode

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

COOKIE = "stssad"
HEADER = b"x-stssad"
MOST_BYTES = 256 * 2**20  # of a request
TOO_LARGE = (413, f"the request is larger than {MOST_BYTES // 2**20} MB")
TOO_SLOW = (408, "the request arrived too slowly")
PATIENCE = 30.0  # seconds without a byte, after which a request is refused
HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    b"frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cache-control": b"no-store",
}
NO_TOKEN = "only who started the studio may open it: use the address that the terminal shows"


class RefusedError(Exception):
    """A request has gone beyond a limit; the guard answers it."""


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: Any, token: str, origins: set[str], patience: float) -> None:
        self.app, self.token, self.origins, self.patience = app, token, origins, patience

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        query = parse_qs(scope["query_string"].decode("latin-1"))
        refusal = self._check_token(headers, query) or self._check_change(scope, headers)
        if refusal is not None:
            await respond(send, *refusal)
        elif "token" in query:  # once; then it is in the cookie, and not in the address
            await self._move_token(scope["path"], query, send)
        else:
            await Exchange(receive, send, self.patience).run(self.app, scope)

    def _check_token(
        self, headers: dict[bytes, bytes], query: dict[str, list[str]]
    ) -> tuple[int, str] | None:
        cookies = SimpleCookie()
        try:
            cookies.load(headers.get(b"cookie", b"").decode("latin-1"))
        except Exception:  # whatever somebody else has set
            cookies = SimpleCookie()
        in_cookie = cookies[COOKIE].value if COOKIE in cookies else ""
        for token in (in_cookie, query.get("token", [""])[0]):
            if secrets.compare_digest(token.encode(), self.token.encode()):
                return None
        return 403, NO_TOKEN

    def _check_change(self, scope: Message, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Whether a request that changes something comes from our own pages."""
        if scope["method"] in ("GET", "HEAD"):
            return None
        origin = headers.get(b"origin", b"").decode("latin-1")
        site = headers.get(b"sec-fetch-site", b"same-origin")
        if (origin and origin not in self.origins) or site not in (b"same-origin", b"none"):
            return 403, "another page may not change anything here"
        if headers.get(HEADER) != b"1":
            return 403, "a request that changes something needs the studio's own header"
        length = headers.get(b"content-length", b"0")
        return TOO_LARGE if not length.isdigit() or int(length) > MOST_BYTES else None

    async def _move_token(self, path: str, query: dict[str, list[str]], send: Send) -> None:
        rest = urlencode({name: values[0] for name, values in query.items() if name != "token"})
        cookie = f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/"
        location = path + (f"?{rest}" if rest else "")
        own = [(b"location", location.encode()), (b"set-cookie", cookie.encode())]
        await respond(send, 303, "", own)


class Exchange:
    """One request within its limits. What the application makes of a request beyond them isn't
    sent: the guard responds itself."""

    def __init__(self, receive: Receive, send: Send, patience: float) -> None:
        self._receive, self._send, self._patience = receive, send, patience
        self._n_read, self._has_begun = 0, False
        self._refusal: tuple[int, str] | None = None

    async def run(self, app: Any, scope: Message) -> None:
        try:
            await app(scope, self._receive_within_limits, self._send_with_headers)
        except RefusedError:
            pass
        finally:
            if self._refusal is not None and not self._has_begun:
                await respond(self._send, *self._refusal)

    async def _receive_within_limits(self) -> Message:
        try:
            patience = None if self._has_begun else self._patience
            message = await asyncio.wait_for(self._receive(), patience)
        except asyncio.TimeoutError:
            self._refusal = TOO_SLOW
            raise RefusedError from None
        self._n_read += len(message.get("body", b""))
        if self._n_read > MOST_BYTES:
            self._refusal = TOO_LARGE
            raise RefusedError
        return message

    async def _send_with_headers(self, message: Message) -> None:
        if self._refusal is not None and not self._has_begun:
            return
        if message["type"] == "http.response.start":
            self._has_begun = True
            own = {name.lower() for name, _ in message["headers"]}
            ours = [(name, value) for name, value in HEADERS.items() if name not in own]
            message["headers"] = [*message["headers"], *ours]
        await self._send(message)


async def respond(
    send: Send, status: int, text: str, own: list[tuple[bytes, bytes]] | None = None
) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *HEADERS.items(), *(own or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
