"""A real browser for tests of pages: headless chromium, controlled through a pipe."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import time
from base64 import b64decode
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--mute-audio")


def find() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One tab, which collects the page's requests in `requests` and its errors and warnings in `complaints`."""

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        # The browser reads commands from descriptor 3 and writes answers to 4, each ended by a zero byte.
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        command = [program, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._from, selectors.EVENT_READ)
        self._rest, self._number, self._session = b"", 0, None
        self._loaded = False
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def __enter__(self) -> Browser:
        pages = [page for page in self.call("Target.getTargets")["targetInfos"] if page["type"] == "page"]
        target = pages[0]["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{part}.enable")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._to)  # which ends the browser
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)

    def open(self, path: Path) -> None:
        self._loaded = False
        self.requests.clear()
        self.complaints.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        until = time.monotonic() + 30
        while not self._loaded:
            self._receive(until)

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def resize(self, width: int, height: int, is_dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self) -> bytes:
        """Return the whole page as PNG."""
        return b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")["data"])

    def point_at(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 30
        while True:
            answer = self._receive(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _receive(self, until: float) -> dict[str, Any]:
        """Return the next message, and record events."""
        while b"\0" not in self._rest:
            if not self._ready.select(max(0.0, until - time.monotonic())):
                raise TimeoutError("the browser does not answer")
            read = os.read(self._from, 1 << 20)
            if not read:
                raise RuntimeError(f"the browser ended with status {self._process.wait()}")
            self._rest += read
        text, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, params: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif event == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"]))
