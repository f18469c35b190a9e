"""A client of an application in this process; it keeps cookies, and follows no redirection."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx


class Client:
    """Asks an ASGI application."""

    def __init__(self, app: Any, base_url: str = "http://localhost") -> None:
        self._app, self._base_url, self._cookies = app, base_url, httpx.Cookies()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(
                transport=transport, base_url=self._base_url, cookies=self._cookies
            ) as client:
                answer = await client.request(method, path, **options)
                self._cookies = client.cookies
                return answer

        return asyncio.run(ask())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)
