"""Debian's Chromium without a screen, controlled over the WebDriver protocol: plain HTTP, without a library."""

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
from typing import Any

from mirrormaker.embedded import child_processes

MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window. A request that fails raises an AssertionError with Chromium's message."""

    def __init__(self, directory: Path, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        self._size, self._dark = (width, height), dark
        self._directory = directory
        self._session = ""

    def __enter__(self) -> Browser:
        log = self._directory / "chromedriver.log"
        with log.open("wb") as output:
            self._process = child_processes.spawn(["chromedriver", "--port=0"], stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 30
        while not (match := re.search(r"successfully on port (\d+)", log.read_text())):
            assert time.monotonic() < deadline, f"chromedriver did not start:\n{log.read_text()}"
            time.sleep(0.05)
        self._url = f"http://127.0.0.1:{match[1]}/session"
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
        self.use_dark_mode(self._dark)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._ask("DELETE", "")
        finally:
            child_processes.end(self._process, signal.SIGTERM)

    def open(self, url: str) -> None:
        """Load a page."""
        self._ask("POST", "/url", {"url": url})

    def run(self, script: str, *args: Any) -> Any:
        """Return the result of a script; if that is a promise, wait for its value."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(args)})

    def text(self, selector: str) -> str:
        """Return the text of an element, or "" if there is none."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def click(self, selector: str) -> None:
        """Click on an element."""
        self._ask("POST", f"/element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Replace the text of an input element."""
        element = self._find(selector)
        self._ask("POST", f"/element/{element}/clear", {})
        self._ask("POST", f"/element/{element}/value", {"text": text})

    def wait_for(self, script: str, *args: Any, within: float = 20) -> Any:
        """Wait until a script returns a true value, and return it."""
        deadline = time.monotonic() + within
        while not (result := self.run(script, *args)):
            assert time.monotonic() < deadline, f"the script returns no true value: {script}\n{self.text('body')}"
            time.sleep(0.1)
        return result

    def console_messages(self) -> list[str]:
        """Return the messages in the page's console, such as violations of its content security policy."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def resize(self, width: int, height: int) -> None:
        """Change the size of the window."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._cdp("Emulation.setDeviceMetricsOverride", metrics)

    def use_dark_mode(self, dark: bool) -> None:
        """Make pages see the reader's preference for dark or light colours."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._cdp("Emulation.setEmulatedMedia", {"features": features})

    def screenshot(self, path: Path) -> None:
        """Save the window as a PNG file."""
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def _find(self, selector: str) -> str:
        return str(self._ask("POST", "/element", {"using": "css selector", "value": selector})[_ELEMENT])

    def _cdp(self, command: str, params: dict[str, Any]) -> None:
        self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self._url}{self._session}{path}", data, method=method)
        try:
            with _OPENER.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {json.load(error)['value']['message']}") from None
