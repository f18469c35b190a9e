"""The gate before every answer: methods, Host, token, and headers that keep a browser from anything else."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
import urllib.parse
from collections.abc import Iterable, Iterator

from starlette import requests, responses, types

MAX_FORM_BYTES = 8192
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def is_loopback(host: str) -> bool:
    """Returns whether only processes of this machine reach a host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class HostNames:
    """The names by which a browser may call the page: a name of another site, led here by DNS, is refused.

    Addresses are no names: of this machine on loopback, any of them elsewhere.
    """

    def __init__(self, host: str, own: Iterable[str] | None = None, proxy: str = "") -> None:
        """host: of --host. own: names of this machine; None: the system's. proxy: name of a proxy, "": none."""
        self._is_local = is_loopback(host)
        given = {host.lower()} if host not in ("", "0.0.0.0", "::") else set()
        names = own if own is not None else (socket.gethostname(), socket.getfqdn())
        others = set() if self._is_local else {name.lower() for name in names}
        self.names = sorted({"localhost", *given, *others, proxy.lower()} - {""})

    def allows(self, header: str) -> bool:
        """Returns whether the header Host names the page, with any port: a tunnel has its own."""
        host, colon, port = header.lower().rpartition(":")
        if not colon or header.endswith("]"):
            host, port = header.lower(), ""
        if port and not (port.isascii() and port.isdigit()):
            return False
        if host in self.names:
            return True
        try:
            address = ipaddress.ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
        except ValueError:
            return False
        return address.is_loopback or not self._is_local


class Gate:
    """Passes requests on to an ASGI application; reads alone, of allowed hosts, with the token if there is one."""

    def __init__(
        self,
        app: types.ASGIApp,
        hosts: HostNames,
        token: str,
        cookie: str,
        login: str,
        root: str = "",
        posts: frozenset[str] = frozenset(),
    ) -> None:
        """token: "": none is needed. cookie: its name. login: HTML with the form for the token.

        root: path of the page behind a proxy, which may leave it in its requests or not; "": none. posts: paths that
        take JSON by POST, of the page's own requests.
        """
        self._posts = posts
        self._app, self._hosts, self._token, self._login, self.cookie = app, hosts, token, login, cookie
        self._root = urllib.parse.unquote(root)
        self._secret = hmac.new(token.encode(), b"seedzero page", hashlib.sha256).hexdigest()

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        """Answers a refused request itself."""
        if scope["type"] != "http":
            return  # no websockets, no lifespan

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
        """Returns the gate's own answer; None: the request may pass."""
        path = request.scope["path"]
        if len(request.headers.getlist("host")) != 1 or not self._hosts.allows(request.headers["host"]):
            return _refusal(
                421,
                f"the page answers to {', '.join(self._hosts.names)} alone; open one of these names, or give the "
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
            refusal = _refusal(405, "the page only reads: GET and HEAD alone")
            refusal.headers["Allow"] = "GET, HEAD"
            return refusal
        if not path:  # of the root without the last slash, to which a browser's relative addresses refer
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
        """Returns a redirection with the cookie for the right token, and the form again for any other."""
        if not _is_same(given, self._token):
            return responses.HTMLResponse(self._login, 403)
        answer = responses.RedirectResponse("./", 303)
        path = f"{urllib.parse.quote(self._root)}/"
        answer.set_cookie(self.cookie, self._secret, httponly=True, samesite="strict", path=path)
        return answer

    def _read_cookies(self, request: requests.Request) -> Iterator[str]:
        """Yields the values of the page's cookie; other programs' cookies of this host may be of any form."""
        for header in request.headers.getlist("cookie"):
            for part in header.split(";"):
                name, _, value = part.partition("=")
                if name.strip() == self.cookie:
                    yield value.strip()


async def _read_token(request: requests.Request) -> str:
    """Returns the token of a form, "" without one."""
    content = b""
    async for piece in request.stream():
        content += piece
        if len(content) > MAX_FORM_BYTES:
            return ""
    form = urllib.parse.parse_qs(content.decode("ascii", errors="replace"))
    return form.get("token", [""])[0].strip()


def _is_own_post(request: requests.Request) -> bool:
    """Returns whether a POST is the page's: another site's form cannot send JSON, and its script would be asked."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    return site == "same-origin" and request.headers.get("content-type", "").startswith("application/json")


def _is_same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def _refusal(code: int, text: str) -> responses.JSONResponse:
    return responses.JSONResponse({"error": text}, code)
