"""Debian's Chromium, without a screen, driven over the WebDriver protocol: that is plain HTTP, so it needs no library."""

from __future__ import annotations

import base64
import json
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from mirrormaker.embedded import child_processes

MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window; whatever is asked of it raises with what Chromium says about it."""

    def __init__(self, directory: Path, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        self._size, self._dark = (width, height), dark
        self._directory = directory
        self._session = ""

    def __enter__(self) -> Browser:
        log = self._directory / "chromedriver.log"
        with log.open("wb") as output:
            self._process = child_processes.spawn(["chromedriver", "--port=0"], stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 30
        while not (found := re.search(r"successfully on port (\d+)", log.read_text())):
            assert time.monotonic() < deadline, f"chromedriver did not start:\n{log.read_text()}"
            time.sleep(0.05)
        self._url = f"http://127.0.0.1:{found[1]}/session"
        arguments = [
            "--headless=new",
            "--disable-gpu",
            "--no-first-run",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
        ]
        arguments += ["--no-sandbox", f"--user-data-dir={self._directory / 'chromium'}"]
        options = {"args": arguments, "binary": shutil.which("chromium")}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self._ask("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/{answer['sessionId']}"
        self.resize(*self._size)
        self.look_dark(self._dark)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._ask("DELETE", "")
        finally:
            child_processes.end(self._process, signal.SIGTERM)

    def open(self, url: str) -> None:
        self._ask("POST", "/url", {"url": url})

    def run(self, script: str, *args: Any) -> Any:
        """What a script returns; of a promise, what it comes to."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(args)})

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def click(self, selector: str) -> None:
        self._ask("POST", f"/element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        element = self._find(selector)
        self._ask("POST", f"/element/{element}/clear", {})
        self._ask("POST", f"/element/{element}/value", {"text": text})

    def wait_for(self, script: str, *args: Any, within: float = 20) -> Any:
        """Until a script returns something that counts as true."""
        deadline = time.monotonic() + within
        while not (found := self.run(script, *args)):
            assert time.monotonic() < deadline, f"it did not come to that: {script}\n{self.text('body')}"
            time.sleep(0.1)
        return found

    def complaints(self) -> list[str]:
        """What the page has written to its console, above all violations of its own policy."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._cdp("Emulation.setDeviceMetricsOverride", metrics)

    def look_dark(self, dark: bool) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._cdp("Emulation.setEmulatedMedia", {"features": features})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def _find(self, selector: str) -> str:
        return str(self._ask("POST", "/element", {"using": "css selector", "value": selector})[_ELEMENT])

    def _cdp(self, command: str, params: dict[str, Any]) -> None:
        self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self._url}{self._session}{path}", data, method=method)
        try:
            with _DIRECTLY.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {json.load(error)['value']['message']}") from None
