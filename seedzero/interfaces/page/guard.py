"""Checks every request's method, Host and token, and adds headers that restrict what a browser may do."""

from __future__ import annotations

import hashlib
import hmac
import urllib.parse
from collections.abc import Iterator

from starlette import requests, responses, types

from seedzero.core import host_names

MAX_FORM_BYTES = 8192
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "media-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


class Gate:
    """Passes on requests to an ASGI application: only reads, of allowed hosts, with the token if one is required."""

    def __init__(
        self,
        app: types.ASGIApp,
        hosts: host_names.HostNames,
        token: str,
        cookie: str,
        login: str,
        root: str = "",
        posts: frozenset[str] = frozenset(),
    ) -> None:
        """Prepares the checks.

        Args:
          token: "" if none is required.
          cookie: its name.
          login: HTML with the form that asks for the token.
          root: path of the page behind a proxy, which may or may not leave it in requests; "" without one.
          posts: paths that accept JSON by POST from the page itself.
        """
        self._posts = posts
        self._app, self._hosts, self._token, self._login, self.cookie = app, hosts, token, login, cookie
        self._root = urllib.parse.unquote(root)
        self._secret = hmac.new(token.encode(), b"seedzero page", hashlib.sha256).hexdigest()

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        if scope["type"] != "http":
            return  # there are no websockets and no lifespan events

        if self._root and f"{scope['path']}/".startswith(f"{self._root}/"):
            scope = {**scope, "path": scope["path"].removeprefix(self._root)}

        async def send_guarded(message: types.Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        request = requests.Request(scope, receive)
        answer = await self._answer(request)
        await (answer or self._app)(scope, receive, send_guarded)

    async def _answer(self, request: requests.Request) -> types.ASGIApp | None:
        """Returns the gate's own answer, or None if the request may pass."""
        path = request.scope["path"]
        if len(request.headers.getlist("host")) != 1 or not self._hosts.allows(request.headers["host"]):
            return _refusal(
                421,
                f"the page answers only to {', '.join(self._hosts.names)}; open one of these names, or give the "
                "address of the page behind your proxy: --page.root=https://NAME/PATH",
            )
        if request.headers.get("sec-fetch-site") == "cross-site" and path.startswith("/api/"):
            return _refusal(403, "another site asked for this; only the page's own requests are answered")
        if self._token and path == "/token" and request.method == "POST":
            return self._exchange(await _read_token(request))
        if request.method == "POST" and path in self._posts:
            if not _is_own_post(request):
                return _refusal(403, "a move is JSON that the page itself sends")
        elif request.method not in ("GET", "HEAD"):
            refusal = _refusal(405, "the page only reads: it takes GET and HEAD")
            refusal.headers["Allow"] = "GET, HEAD"
            return refusal
        # the root without its last slash, against which a browser would resolve relative addresses wrongly
        if not path:
            return responses.RedirectResponse(f"{self._root.rpartition('/')[2]}/", 307)
        if not self._token or path.startswith("/static/"):
            return None
        if path == "/" and (given := request.query_params.get("token")) is not None:
            return self._exchange(given)
        if any(_is_same(value, self._secret) for value in self._read_cookies(request)):
            return None
        if path.startswith("/api/"):
            return _refusal(401, "the token is missing; open the page again")
        return responses.HTMLResponse(self._login, 401)

    def _exchange(self, given: str) -> responses.Response:
        """Exchanges the right token for the cookie and redirects; shows the form again for any other token."""
        if not _is_same(given, self._token):
            return responses.HTMLResponse(self._login, 403)
        answer = responses.RedirectResponse("./", 303)
        path = f"{urllib.parse.quote(self._root)}/"
        answer.set_cookie(self.cookie, self._secret, httponly=True, samesite="strict", path=path)
        return answer

    def _read_cookies(self, request: requests.Request) -> Iterator[str]:
        """Yields the values of the page's cookie; cookies that other programs set for this host may have any form."""
        for header in request.headers.getlist("cookie"):
            for part in header.split(";"):
                name, _, value = part.partition("=")
                if name.strip() == self.cookie:
                    yield value.strip()


async def read_up_to(request: requests.Request, max_bytes: int) -> bytes | None:
    """Returns a request's content, or None once it is larger."""
    content = b""
    async for piece in request.stream():
        content += piece
        if len(content) > max_bytes:
            return None
    return content


async def _read_token(request: requests.Request) -> str:
    """Returns the token from a form, or ""."""
    content = await read_up_to(request, MAX_FORM_BYTES) or b""
    form = urllib.parse.parse_qs(content.decode("ascii", errors="replace"))
    return form.get("token", [""])[0].strip()


def _is_own_post(request: requests.Request) -> bool:
    """Returns whether a POST comes from the page itself.

    A form of another site cannot send JSON, and a browser asks before its script may.
    """
    site = request.headers.get("sec-fetch-site", "same-origin")
    return site == "same-origin" and request.headers.get("content-type", "").startswith("application/json")


def _is_same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def _refusal(code: int, text: str) -> responses.JSONResponse:
    return responses.JSONResponse({"error": text}, code)
