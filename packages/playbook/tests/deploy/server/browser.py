"""A browser without a window, which a test asks through a pipe (the Chrome DevTools Protocol)."""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --hide-scrollbars --remote-debugging-pipe"
)


class Page:
    """A page of the browser.

    Args:
        commands: descriptor that the browser reads.
        replies: descriptor that it writes.
    """

    def __init__(self, commands: int, replies: int) -> None:
        self._commands, self._replies = commands, replies
        self._received, self._number, self._session = b"", 0, ""
        self.addresses: list[str] = []  # that it has asked for
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self._ask(f"{domain}.enable")

    def open(self, address: str, width: int) -> None:
        """Opens an address in a window of a width."""
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self._ask("Page.navigate", url=address)
        self.run("while (document.readyState !== 'complete') await new Promise((done) => setTimeout(done, 20))")

    def run(self, script: str) -> Any:
        """What the body of an asynchronous function returns, as JSON."""
        code = f"(async () => {{ {script} }})()"
        reply = self._ask("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait(self, condition: str) -> None:
        """Waits until an expression is true."""
        pause = "await new Promise((done) => setTimeout(done, 20))"
        script = f"for (let turn = 0; turn < 500; turn++) {{ if ({condition}) return true; {pause} }}"
        assert self.run(script), f"{condition}; the page says: {self.run('return document.body.innerText')[:500]}"

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("method") == "Network.requestWillBeSent":
                self.addresses.append(reply["params"]["request"]["url"])
            if reply.get("id") == self._number:
                assert "error" not in reply, reply["error"]
                return reply["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            piece = os.read(self._replies, 2**16)
            assert piece, "the browser has ended"
            self._received += piece
        message, _, self._received = self._received.partition(b"\0")
        return json.loads(message)


@contextlib.contextmanager
def browsing(profile: Path) -> Iterator[Page]:
    """A page of a browser with a profile of its own."""
    assert BROWSER is not None, "asked before"
    (read, commands), (replies, write) = os.pipe(), os.pipe()
    command = f"exec {shlex.quote(BROWSER)} {OPTIONS} --user-data-dir={shlex.quote(str(profile))} 3<&{read} 4>&{write}"
    process = subprocess.Popen(
        ["bash", "-c", command], pass_fds=(read, write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(read)
    os.close(write)
    try:
        yield Page(commands, replies)
    finally:
        process.kill()
        process.wait()
        os.close(commands)
        os.close(replies)
