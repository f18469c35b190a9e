"""A headless Chromium, driven by its debugging protocol over two pipes; no package is needed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import pathlib
import select
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from seedzero.core import host_names
from seedzero.interfaces.page import app

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NEEDS_BROWSER = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
SECONDS = 600.0
_WAITS = """new Promise((resolve) => {
  const look = () => {
    const found = (() => EXPRESSION)();
    if (found) resolve(found); else requestAnimationFrame(look);
  };
  look();
})"""


class Tab:
    """A page of the browser. Its console's errors are kept in `errors`."""

    def __init__(self, write: int, read: int, url: str) -> None:
        self._write, self._read, self._rest = write, read, b""
        self._numbers, self._session, self.errors = itertools.count(1), "", list[str]()
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._ask("Runtime.enable")
        self._ask("Log.enable")
        self._ask("Page.enable")
        self._ask("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """Returns the value of an expression; of a promise, its result."""
        found = self._ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Returns the value of an expression once it is true, if need be on the page that replaces this one."""
        while True:
            try:
                return self.value(_WAITS.replace("EXPRESSION", expression))
            except AssertionError as error:
                if "navigated" not in str(error):  # a reload ends what waits on the old page
                    raise

    def click(self, text: str) -> None:
        """Clicks the button with a text, once it may be clicked."""
        buttons = "[...document.querySelectorAll('button')]"
        chosen = f"{buttons}.find((one) => one.textContent === {json.dumps(text)} && !one.disabled)"
        self.wait(f"({chosen}) !== undefined")
        self.value(f"{chosen}.click()")

    def picture(self, path: pathlib.Path) -> None:
        """Writes what the browser shows as PNG."""
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    def _note(self, event: dict[str, Any]) -> None:
        entry = event.get("params", {}).get("entry", {})
        if event.get("method") == "Runtime.exceptionThrown" or entry.get("level") == "error":
            self.errors.append(json.dumps(event["params"]))

    def _next(self) -> dict[str, Any]:
        """Returns the browser's next message."""
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"the browser has said nothing for {SECONDS:g} s"
            piece = os.read(self._read, 1 << 16)
            assert piece, "the browser has ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextlib.contextmanager
def served(page: app.Page) -> Iterator[str]:
    """While entered, serves a page; yields its address."""
    made = app.make(page, hosts=host_names.HostNames("127.0.0.1"))
    settings = uvicorn.Config(made, http="h11", ws="none", lifespan="off", log_config=None, log_level="critical")
    server = uvicorn.Server(settings)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = server.force_exit = True
            thread.join()


@contextlib.contextmanager
def shown(page: app.Page, place: str, profile: pathlib.Path) -> Iterator[Tab]:
    """While entered, a browser shows a place of a page, such as "#/play"."""
    with served(page) as url, opened(f"{url}{place}", profile) as tab:
        yield tab


@contextlib.contextmanager
def opened(url: str, profile: pathlib.Path) -> Iterator[Tab]:
    """While entered, a browser shows an address."""
    assert BROWSER is not None
    (theirs, write), (read, others) = os.pipe(), os.pipe()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=1100,900"]
    command = f'exec "$0" "$@" 3<&{theirs} 4>&{others}'
    words = ["bash", "-c", command, BROWSER, *flags, f"--user-data-dir={profile}"]
    with subprocess.Popen(words, pass_fds=(theirs, others), stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        os.close(others)
        try:
            yield Tab(write, read, url)
        finally:
            os.close(write)
            process.terminate()
            process.wait()
            os.close(read)
