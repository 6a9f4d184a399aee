"""Who may ask, and what an answer may do: this machine's own browser, with the token, and no other.

A page from elsewhere that makes the browser ask us has another Origin, no token (the cookie is
SameSite=Strict) and can't set our header; a name that was bound to 127.0.0.1 is another Host.
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
PATIENCE = 30  # seconds without a byte, after which a request is given up
ANSWERS = {
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
LOST = "this page belongs to whoever started the studio: open the address that the terminal shows"


class TooLargeError(Exception):
    """A request has more bytes than may be."""


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: Any, token: str, hosts: set[str]) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        refused = self._refused(scope, headers)
        if refused is not None:
            await answer(send, *refused)
            return
        asked = parse_qs(scope["query_string"].decode("latin-1"))
        if "token" in asked:  # once; then it is in the cookie, and not in the address
            rest = urlencode({k: v[0] for k, v in asked.items() if k != "token"})
            place = scope["path"] + (f"?{rest}" if rest else "")
            cookie = f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            extra = [(b"location", place.encode()), (b"set-cookie", cookie.encode())]
            await answer(send, 303, "", extra)
            return
        await self._run(scope, receive, send)

    def _refused(self, scope: Message, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if host not in self.hosts:
            return 421, "this is not the address that the studio was started at"
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        cookies = SimpleCookie()
        try:
            cookies.load(headers.get(b"cookie", b"").decode("latin-1"))
        except Exception:  # whatever somebody else has set
            cookies = SimpleCookie()
        kept = cookies[COOKIE].value if COOKIE in cookies else ""
        if not any(secrets.compare_digest(x.encode(), self.token.encode()) for x in (given, kept)):
            return 403, LOST
        if scope["method"] in ("GET", "HEAD"):
            return None
        origin = headers.get(b"origin", b"").decode("latin-1")
        site = headers.get(b"sec-fetch-site", b"same-origin")
        if (origin and origin != f"http://{host}") or site not in (b"same-origin", b"none"):
            return 403, "another page may not change anything here"
        if headers.get(HEADER) != b"1":
            return 403, "a request that changes something needs the studio's own header"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > MOST_BYTES:
            return 413, f"that is more than {MOST_BYTES // 2**20} MB"
        return None

    async def _run(self, scope: Message, receive: Receive, send: Send) -> None:
        n_read, begun = 0, False

        async def limited() -> Message:
            nonlocal n_read
            message = await asyncio.wait_for(receive(), None if begun else PATIENCE)
            n_read += len(message.get("body", b""))
            if n_read > MOST_BYTES:
                raise TooLargeError
            return message

        async def with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                own = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in ANSWERS.items() if name not in own),
                ]
            await send(message)

        try:
            await self.app(scope, limited, with_headers)
        except TooLargeError:
            if not begun:
                await answer(send, 413, f"that is more than {MOST_BYTES // 2**20} MB")
        except asyncio.TimeoutError:
            if not begun:
                await answer(send, 408, "the request came too slowly")


async def answer(
    send: Send, status: int, words: str, extra: list[tuple[bytes, bytes]] | None = None
) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *ANSWERS.items(), *(extra or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": words.encode()})
