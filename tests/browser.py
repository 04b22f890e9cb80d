"""A headless Chromium, driven by its DevTools protocol over a pipe: the standard library does."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from contextlib import contextmanager

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]
SECONDS = 60  # for one answer


def find_chromium():
    """Path of a Chromium or Chrome, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next(filter(None, map(shutil.which, names)), None)


@contextmanager
def open_browser(executable, profile):
    """A browser with a profile folder of its own.

    Chromium reads commands from file descriptor 3 and writes answers to 4, JSON texts that
    end with a zero byte.
    """
    command_out, command_in = _pipe()
    answer_out, answer_in = _pipe()

    def give_descriptors():
        os.dup2(command_out, 3)
        os.dup2(answer_in, 4)

    process = subprocess.Popen(
        [executable, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        preexec_fn=give_descriptors,
        pass_fds=(3, 4),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(command_out)
    os.close(answer_in)
    try:
        yield Browser(command_in, answer_out)
    finally:
        os.close(command_in)  # ends the browser
        os.close(answer_out)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _pipe():
    """Both ends of a pipe, at numbers out of the way of 3 and 4."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved


class Browser:
    """Commands and events of a running browser."""

    def __init__(self, commands, answers):
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._n_sent = 0
        self.events = []

    def send(self, method, session=None, **params):
        """Give a command and wait for its result."""
        self._n_sent += 1
        message = {"id": self._n_sent, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda received: received.get("id") == self._n_sent)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def wait_for(self, method):
        """Wait for an event, unless it is there already."""
        if all(event["method"] != method for event in self.events):
            self._wait(lambda received: received.get("method") == method)

    def _wait(self, is_it):
        end = time.monotonic() + SECONDS
        while True:
            received = self._receive(end - time.monotonic())
            if "method" in received:
                self.events.append(received)
            if is_it(received):
                return received

    def _receive(self, seconds):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0, seconds))
            data = os.read(self._answers, 2**20) if ready else b""
            if not data:
                raise TimeoutError("the browser gives no answer")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


class Page:
    """A tab.

    Parameters
    ----------
    browser : Browser
        The browser.
    width, height : int
        Size of the window in CSS pixels. Up to a width of 600 it is a phone.
    """

    def __init__(self, browser, width, height=900):
        self.browser = browser
        self.width = width
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session, self._target = attached["sessionId"], target
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")
        self._send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width <= 600,
        )

    def _send(self, method, **params):
        return self.browser.send(method, session=self._session, **params)

    def open(self, address):
        """Go to a page and wait until all of it is loaded, images far below included."""
        self.browser.events.clear()
        self._send("Page.navigate", url=address)
        self.browser.wait_for("Page.loadEventFired")
        self.run("for (const image of document.images) image.loading = 'eager'")
        self.wait_until("[...document.images].every(image => image.complete)")
        return self

    def run(self, script):
        """Value of a JavaScript expression."""
        answer = self._send("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_until(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"in vain: {condition}")
            time.sleep(0.05)

    def requests(self):
        """Addresses that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.browser.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self):
        """Errors on the console, and requests that failed."""
        found = []
        for event in self.browser.events:
            method, params = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in {"error", "assert"}:
                found.append(params["args"])
            elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
            elif method == "Network.responseReceived" and params["response"]["status"] >= 400:
                found.append(params["response"]["url"])
        return found

    def screenshot(self, path, whole=False):
        """Write a PNG of the window, or of the whole page."""
        shot = self._send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        self.browser.send("Target.closeTarget", targetId=self._target)
