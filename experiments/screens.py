"""Photographs the pages of `seedzero page` for docs/page.md, from short runs made for it.

    python experiments/screens.py [--out=docs/page] [--runs=DIR] [--only=NAME,NAME]

Trains missing runs of RUNS into DIR (default: a new temporary directory) and records episodes; then opens each screen
of SCREENS in Chromium without a window and writes OUT/NAME.png, at most 150 KB. It takes five to ten minutes on two
cores. Live screens (`is_live`) are taken during a training. Screens of pages that this release lacks are left out, and
named.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from PIL import Image

ROOT = pathlib.Path(__file__).parents[1]
MAX_BYTES = 150_000
_SECONDS = 120
_RECORD = "record=episode-000000.npz"
_LIVE = "live"


@dataclasses.dataclass(frozen=True)
class Screen:
    """A picture. address: behind #/ of the page. seconds: to wait for its content.

    is_live: taken during a training. played: the run that a person plays against, "" for none. script: JavaScript that
    runs before the picture is taken.
    """

    name: str
    address: str
    width: int = 1200
    height: int = 760
    theme: str = "light"
    seconds: float = 3.0
    is_live: bool = False
    played: str = ""
    script: str = ""


RUNS = {
    "catch": ("--preset=catch", "--max_seconds=60", "--checkpoint.keep=4"),
    "cartpole": ("--preset=cartpole", "--agent=ppo", "--max_seconds=60", "--stop_at_return=inf"),
    "tictactoe": ("--preset=tictactoe", "--max_seconds=90"),
    "opponent": ("--preset=tictactoe", "--agent=ppo", "--max_seconds=150"),
    "league": ("--preset=league-tictactoe", "--max_seconds=110", "--league.freeze_every=2000"),
}
RATES = {"slow": "0.0001", "fast": "0.001"}
RUNS |= {
    f"{name}-{seed}": (
        "--preset=catch",
        "--agent=ppo",
        f"--optimizer.learning_rate={rate}",
        f"--seed={seed}",
        "--max_env_steps=60000",
        "--evaluation.every_seconds=1",
        "--evaluation.every_updates=50",
    )
    for name, rate in RATES.items()
    for seed in (1, 2, 3)
}
"""Run directory -> settings of its training."""
RECORDED = {"catch": (), "cartpole": (), "tictactoe": ("--policy=sample",)}
"""Run directory -> flags of `seedzero record`."""
LIVE = ("--preset=catch", "--max_seconds=600", "--stop_at_return=inf")
"""Settings of the training for live screens."""
GROUP = """(async () => {
  const select = document.querySelector(".tools select");
  select.value = "seeds";
  select.dispatchEvent(new Event("change"));
  while (!document.querySelector(".runs details")) await new Promise((done) => setTimeout(done, 50));
})()"""
"""Groups the table of runs over seeds."""
DRAWN = """(async () => {
  while (!document.querySelector(".plot canvas")) await new Promise((done) => setTimeout(done, 50));
  await new Promise((done) => setTimeout(done, 500));
})()"""
"""Waits for a plot."""
_COMPARED = "&".join(f"run={name}-{seed}" for name in RATES for seed in (1, 2, 3))
SCREENS = (
    Screen("runs", "", height=420, seconds=60.0, script=GROUP),
    Screen("means", f"compare?{_COMPARED}&group=1", height=740, script=DRAWN),
    Screen("curves", "run?run=cartpole", height=1100),
    Screen("compare", "compare?run=catch&run=tictactoe", height=740),
    Screen("league", "league?run=league", height=1000),
    Screen("settings", "settings?run=catch", height=520),
    Screen("records", "records?run=tictactoe", height=420),
    Screen("record", f"record?run=catch&{_RECORD}&step=4", height=900),
    Screen("thought", f"record?run=tictactoe&{_RECORD}&step=3&think=1", height=2000, theme="dark", seconds=60.0),
    Screen("phone", f"record?run=cartpole&{_RECORD}&step=40", width=390, height=1000),
    Screen("runtime", f"runtime?run={_LIVE}", height=900, seconds=8.0, is_live=True),
    Screen("play", "play", width=1100, height=748, seconds=60.0, played="opponent"),
    Screen("game", f"game?run={_LIVE}&environment=0", height=760, seconds=8.0, is_live=True),
)
PLAY = """(async () => {
  const ready = async (test) => { while (!test()) await new Promise((done) => setTimeout(done, 50)); };
  const isMine = () => document.querySelector(".told")?.textContent === "It is your turn.";
  const press = (text) => [...document.querySelectorAll("button")].find((one) => one.textContent === text).click();
  for (let move = 0; move < 2; move++) {
    await ready(isMine);
    [4, 8, 2, 1].map((cell) => document.querySelector(`.cell[data-action="${cell}"]`)).find(Boolean).click();
  }
  await ready(isMine);
  press("what it thinks");
  await ready(() => document.querySelector(".thought table"));
  press("hint");
  await ready(() => document.querySelector(".hinted"));
})()"""
"""Makes two moves of a person in tic-tac-toe, and asks for the thought and the hint."""


class Browser:
    """Chromium without a window, controlled through its debugging pipe; a context manager."""

    def __init__(self, command: str) -> None:
        self._command, self._number, self._rest = command, 0, b""

    def __enter__(self) -> Browser:
        self._profile = tempfile.mkdtemp(prefix="seedzero-screens-")
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        # The browser reads from file descriptor 3 and writes to 4.
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        command = ["bash", "-c", script, "bash", self._command, *flags, f"--user-data-dir={self._profile}"]
        quiet: Any = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), **quiet)
        os.close(to_browser)
        os.close(from_browser)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self._profile, ignore_errors=True)

    def picture(self, url: str, screen: Screen) -> bytes:
        """Returns a screen as PNG."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        size = {"width": screen.width, "height": screen.height, "deviceScaleFactor": 1, "mobile": screen.width < 600}
        self._call("Emulation.setDeviceMetricsOverride", session, **size)
        theme = [{"name": "prefers-color-scheme", "value": screen.theme}]
        self._call("Emulation.setEmulatedMedia", session, features=theme)
        self._call("Page.navigate", session, url=f"{url}#/{screen.address}")
        end = time.monotonic() + screen.seconds
        time.sleep(min(screen.seconds, 3.0))
        while time.monotonic() < end and "…" in (self._text(session) or "…"):  # the page shows one while it waits
            time.sleep(0.5)
        for script in filter(None, (screen.script, PLAY if screen.played else "")):
            self._call("Runtime.evaluate", session, expression=script, awaitPromise=True)
        found = self._call("Page.captureScreenshot", session, format="png")["data"]
        self._call("Target.closeTarget", targetId=target)
        return base64.b64decode(found)

    def _text(self, session: str) -> str:
        script = "document.getElementById('main')?.innerText"
        return str(self._call("Runtime.evaluate", session, expression=script)["result"].get("value", ""))

    def _call(self, method: str, session: str = "", **values: Any) -> Mapping[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": values}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                content = os.read(self._from, 1 << 20)
                if not content:
                    raise RuntimeError(f"{self._command} has ended; open it by hand to see the reason")
                self._rest += content
            line, _, self._rest = self._rest.partition(b"\0")
            found = json.loads(line)
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                result: Mapping[str, Any] = found["result"]
                return result


def small(content: bytes, max_bytes: int = MAX_BYTES) -> bytes:
    """Returns a picture as a PNG with a palette, with as many colours as fit."""
    image = Image.open(io.BytesIO(content)).convert("RGB")
    for num_colors in (256, 128, 64, 32, 16):
        stream = io.BytesIO()
        image.quantize(num_colors, dither=Image.Dither.NONE).save(stream, "PNG", optimize=True)
        if stream.tell() <= max_bytes:
            return stream.getvalue()
    raise ValueError(f"the picture has more than {max_bytes} bytes with 16 colours; give the screen a smaller height")


def known(screen: Screen, script: str) -> bool:
    """Returns whether the page's script main.js knows the page of a screen."""
    name = screen.address.partition("?")[0]
    return name in ("", "compare", "play") or re.search(rf"\b{name}: \w+Page\b", script) is not None


def seedzero(*words: str) -> list[str]:
    """Returns a command."""
    return [sys.executable, "-m", "seedzero.cli", *words]


def make_runs(folder: pathlib.Path, names: Sequence[str]) -> None:
    """Trains missing runs, and records episodes of some."""
    for name in names:
        path = folder / name
        if not (path / "config.json").exists():
            subprocess.run(seedzero("train", *RUNS[name], f"--run_dir={path}"), check=True)
        if name in RECORDED and not (path / "records").exists():
            subprocess.run(seedzero("record", f"--run_dir={path}", "--episodes=3", *RECORDED[name]), check=True)


@contextlib.contextmanager
def serving(*words: str) -> Iterator[str]:
    """Runs a command that serves a page and yields its address."""
    process = subprocess.Popen(seedzero(*words), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://[^\s#]+/", line):
                yield found[0]
                return
        raise RuntimeError("the page did not start; `seedzero page` tells the reason")
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def training(path: pathlib.Path) -> Iterator[None]:
    """Trains a run while the context is entered; yields once it has rows of metrics."""
    shutil.rmtree(path, ignore_errors=True)
    quiet: Any = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process = subprocess.Popen(seedzero("train", *LIVE, f"--run_dir={path}"), **quiet)
    try:
        end = time.monotonic() + _SECONDS
        while not (path / "metrics.jsonl").exists() or not (path / "metrics.jsonl").stat().st_size:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no row in {path / 'metrics.jsonl'} within {_SECONDS} s; train it by hand")
            time.sleep(0.5)
        yield
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Reads the command line and writes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "page")
    parser.add_argument("--runs", type=pathlib.Path)
    parser.add_argument("--only", default="", metavar="NAME,NAME")
    given = parser.parse_args()
    command = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if command is None:
        parser.error("no Chromium is installed; install the package chromium")
    script = (ROOT / "seedzero" / "interfaces" / "page" / "static" / "main.js").read_text(encoding="utf-8")
    wanted = [screen for screen in SCREENS if not given.only or screen.name in given.only.split(",")]
    for screen in wanted:
        if not known(screen, script):
            print(f"{screen.name}: this release has no such page")
    wanted = [screen for screen in wanted if known(screen, script)]
    folder = given.runs or pathlib.Path(tempfile.mkdtemp(prefix="seedzero-screens-"))
    shown = "".join(screen.address + screen.played for screen in wanted)
    make_runs(folder, [name for name in RUNS if not given.only or name in shown])
    given.out.mkdir(parents=True, exist_ok=True)

    def take(browser: Browser, url: str, chosen: Sequence[Screen]) -> None:
        for screen in chosen:
            content = small(browser.picture(url, screen))
            (given.out / f"{screen.name}.png").write_bytes(content)
            print(f"{screen.name}.png: {len(content) / 1000:.0f} KB")

    with Browser(command) as browser:
        with serving("page", f"--run_dir={folder}") as url:
            take(browser, url, [screen for screen in wanted if not (screen.is_live or screen.played)])
            if live := [screen for screen in wanted if screen.is_live]:
                with training(folder / _LIVE):
                    take(browser, url, live)
        for screen in (screen for screen in wanted if screen.played):
            with serving("play", f"--run_dir={folder / screen.played}", "--page", "--human") as url:
                take(browser, url, [screen])


if __name__ == "__main__":
    main()
