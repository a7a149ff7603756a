"""A headless Chromium, driven through its debugging pipe: no package, no network."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


class Browser:
    """One page of a browser.

    Parameters
    ----------
    folder : Path
        For the browser's own files.
    width, height : int
        Of the window's inside.
    """

    def __init__(self, folder: Path, width: int = 1200, height: int = 760) -> None:
        assert BROWSER is not None
        from_here, to_browser = os.pipe()
        from_browser, to_here = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4.
        script = f'exec 3<&{from_here} 4>&{to_here}; exec "$@"'
        arguments = [
            BROWSER,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
            "--disable-component-update",
            "--disable-background-networking",
            "--force-color-profile=srgb",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder / 'profile'}",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", script, "browser", *arguments],
            pass_fds=(from_here, to_here),
            stdout=subprocess.DEVNULL,
            stderr=open(folder / "browser.log", "wb"),  # noqa: SIM115
            env={**os.environ, "HOME": str(folder)},
            start_new_session=True,
        )
        os.close(from_here)
        os.close(to_here)
        self._write, self._read, self._left = to_browser, from_browser, b""
        self._count = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.do(f"{domain}.enable")
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol, and its answer."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _next(self, patience: float = 60) -> dict[str, Any]:
        while b"\0" not in self._left:
            if not select.select([self._read], [], [], patience)[0]:
                raise TimeoutError(f"the browser said nothing for {patience} s")
            more = os.read(self._read, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self._left += more
        text, self._left = self._left.split(b"\0", 1)
        return json.loads(text)

    def open(self, path: Path) -> None:
        """Load a file and wait until it has drawn."""
        self.do("Page.navigate", url=path.as_uri())
        self.until("document.readyState === 'complete' && window.memxLayout?.frames.length > 0")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, expression: str, patience: float = 60) -> None:
        """Wait for something to become true."""
        end = time.monotonic() + patience
        while not self.ask(expression):
            if time.monotonic() > end:
                raise TimeoutError(expression)

    def drawn(self) -> None:
        """Wait for the frame after this one."""
        self.ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.do("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def wheel(self, x: float, y: float, turned: float, modifiers: int = 0) -> None:
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=turned, modifiers=modifiers)
        self.drawn()

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, button="left", clickCount=1)
        for share in (0.3, 0.6, 1):
            x, y = (a + (b - a) * share for a, b in zip(start, end, strict=True))
            self.mouse("mouseMoved", x, y, button="left")
        self.mouse("mouseReleased", *end, button="left", clickCount=1)
        self.drawn()

    def click(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.drawn()

    def key(self, name: str, text: str = "", modifiers: int = 0) -> None:
        down = {"type": "keyDown", "key": name, "modifiers": modifiers, **({"text": text} if text else {})}
        self.do("Input.dispatchKeyEvent", **down)
        self.do("Input.dispatchKeyEvent", type="keyUp", key=name, modifiers=modifiers)
        self.drawn()

    def type(self, text: str) -> None:
        self.do("Input.insertText", text=text)
        self.drawn()

    def screenshot(self, path: Path) -> Path:
        path.write_bytes(base64.b64decode(self.do("Page.captureScreenshot", format="png")["data"]))
        return path

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._session = None
            self.do("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)


@contextlib.contextmanager
def browser(folder: Path, **window: int) -> Iterator[Browser]:
    """A browser while the block runs."""
    one = Browser(folder, **window)
    try:
        yield one
    finally:
        one.close()
