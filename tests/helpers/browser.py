"""A headless Chromium, driven through its debugging pipe: opens pages and reads what a person would."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VISIBLE_TEXT = """
(function walk(node) {
  let text = '';
  for (const child of [...node.childNodes, ...(node.shadowRoot ? node.shadowRoot.childNodes : [])]) {
    if (child.nodeType === 3) text += child.textContent + '\\n';
    else if (!['STYLE', 'SCRIPT', 'TEMPLATE'].includes(child.tagName)) text += walk(child);
  }
  return text;
})(document.body)
"""


class Browser:
    """One window. Answers come back in order, each ended by a zero byte, on descriptors 3 (to it) and 4 (from it)."""

    def __init__(self, width=1300, height=760):
        self._profile = tempfile.TemporaryDirectory()
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        theirs_in, theirs_out = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out))

        def place_descriptors():
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        flags += [f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [EXECUTABLE, *flags], pass_fds=(3, 4), preexec_fn=place_descriptors, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._number, self._session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                data = os.read(self._from, 1 << 16)
                assert data, "the browser is gone"
                self._buffer += data
            line, self._buffer = self._buffer.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def read(self, url, *wanted, seconds=90):
        """The text of a page, shadow roots included, once it holds all that is wanted, each as often as it is named."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        deadline, text = time.monotonic() + seconds, ""
        while time.monotonic() < deadline:
            text = self.call("Runtime.evaluate", expression=VISIBLE_TEXT)["result"].get("value", "")
            if all(text.count(piece) >= wanted.count(piece) for piece in wanted):
                return text
            time.sleep(0.3)
        missing = [piece for piece in wanted if text.count(piece) < wanted.count(piece)]
        raise AssertionError(f"{url} does not show {missing}, but {text[-3000:]!r}")

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self._process.terminate()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()
