"""Test the page in Firefox. SPDX-License-Identifier: Apache-2.0"""

import json
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from checks import check, fixed, root, work
from explorer import Page, url
from screens import COLOURS, LABELS
from story import STEPS
from trained import LOSS


class Firefox:
    """Firefox, controlled without a driver through its built-in Marionette server."""

    def __init__(self):
        self.place, self.n = Path(tempfile.mkdtemp(dir=work)), 0
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        prefs = {
            "marionette.port": port,
            "browser.download.folderList": 2,
            "browser.download.dir": str(self.place),
            "browser.shell.checkDefaultBrowser": False,
        }
        (self.place / "user.js").write_text("".join(f'user_pref("{k}", {json.dumps(v)});\n' for k, v in prefs.items()))
        line = [shutil.which("firefox-esr") or "firefox", "--headless", "--marionette", "--no-remote", "--profile",
                self.place]
        self.process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(1000):
            try:
                self.socket = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                time.sleep(0.1)
        self.stream = self.socket.makefile("rb")
        self.answer()
        self("WebDriver:NewSession", capabilities={})

    def answer(self):
        size = b""
        while (byte := self.stream.read(1)) != b":":
            size += byte
        return json.loads(self.stream.read(int(size)))

    def __call__(self, command, **parameters):
        self.n += 1
        text = json.dumps([0, self.n, command, parameters]).encode()
        self.socket.sendall(f"{len(text)}:".encode() + text)
        _, _, error, found = self.answer()
        if error:
            raise RuntimeError(error["message"])
        return found.get("value") if isinstance(found, dict) else found

    def js(self, script):
        return self("WebDriver:ExecuteScript", script=script, args=[])

    def until(self, script, seconds=100):
        for _ in range(20 * seconds):
            if found := self.js(script):
                return found
            time.sleep(0.05)
        check(f"Firefox, in {seconds} s: {script}", False)

    def show(self, to):
        self("WebDriver:Navigate", url="about:blank")
        self("WebDriver:Navigate", url=url + to)
        self.until("return document.documentElement.dataset.ready")
        self.until("return document.querySelector('h2') !== null && !document.querySelector('[aria-busy]')")

    def saved(self, button, name):
        self.js(f"[...document.querySelectorAll('button')].find(b => b.textContent === '{button}').click()")
        for _ in range(2000):
            if (self.place / name).exists() and (self.place / name).stat().st_size:
                break
            time.sleep(0.05)
        return self.place / name


def firefox(browser):
    """Check the page in Debian's firefox-esr, if it is installed: numbers equal those in chromium, and exports and
    opened files work."""
    if not shutil.which("firefox-esr"):
        print("    skipped: firefox-esr is missing")
        return
    page, other = Page(browser), Firefox()
    try:
        for to in [f"#{view}" for view in page.show("bias").p.evaluate("relpos.views")] + [
            "#bias?a=deberta,k_pos=k_pos,q_pos=q_pos&b=alibi&q=20&k=20&save=sum",
            "#bias?a=t5&b=fire,c=1,L=8&q=30&k=41&save=sum",
            "#model?source=lab0&a=t5,bidirectional=0,table=t5.table&masks=causal&query=60&head=2",
        ]:
            other.show(to)
            page.p.goto("about:blank")
            page.p.goto(url + to)
            page.p.wait_for_selector("html[data-ready]")
            page.frames()
            said = other.js("return [...document.querySelectorAll('.problem')].map(x => x.textContent).join('')")
            check(f"Firefox {to}: no problem", said == "", said)
            mine, theirs = page.csv(), json.loads(other.js("return JSON.stringify(relpos.page().csv())"))

            def same(x, y):
                if isinstance(x, float) and np.isinf(x):
                    return y is None  # JSON has no infinity
                if to == "#length" and isinstance(x, float):  # the two browsers may run different modules
                    return abs(x - y) < LOSS
                return fixed([x]) == fixed([y]) if isinstance(x, float) else x == y

            check(
                f"Firefox {to}: the numbers of chromium",
                len(mine) == len(theirs) and all(same(x, y) for a, b in zip(mine, theirs) for x, y in zip(a, b)),
            )
            check(f"Firefox {to}: fits", other.js("return document.documentElement.scrollWidth <= innerWidth"))
        for width, height in ((1280, 800), (500, 844)):  # a window cannot be narrower
            other("WebDriver:SetWindowRect", width=width, height=height)
            more = other.js("return [outerWidth - innerWidth, outerHeight - innerHeight]")
            other("WebDriver:SetWindowRect", width=width + more[0], height=height + more[1])
            for step in STEPS:
                what = f"Firefox {step}, {width}"
                other.show(f"#{step}")
                other.until("return relpos.page().csv()?.length > 0")
                time.sleep(0.3)
                box = other.js("const {top, bottom} = document.querySelector('.picture').getBoundingClientRect(); "
                               "return [top, bottom, innerHeight, innerWidth]")
                check(f"{what}: the picture is on the first screen", box[1] <= box[2] and box[3] == width, box)
                found = other("WebDriver:FindElement", using="css selector", value=".picture")
                many, share = page.p.evaluate(COLOURS, other("WebDriver:TakeScreenshot", id=next(iter(found.values())),
                                                             full=False, scroll=False))
                check(f"{what}: it is not blank", many > 8 and share > 0.02,
                      f"{many} colours, {share:.3f} of the pixels")
                cut = other.js(f"return ({LABELS})()")
                check(f"{what}: nothing is cut", not cut, cut)
        other.show("#bias?a=alibi&q=9&k=9")
        check("Firefox: PNG", other.saved("PNG", "bias-alibi.png").read_bytes()[:4] == b"\x89PNG")
        check("Firefox: SVG", other.saved("SVG", "bias-alibi.svg").read_text().startswith("<svg"))
        check("Firefox: CSV", other.saved("CSV", "bias-alibi.csv").read_text().startswith("head,query,key,bias"))
        other.show("#sentence")
        check("Firefox: PNG of a chart", other.saved("PNG", "sentence.png").read_bytes()[:4] == b"\x89PNG")
        other.show("#model")
        for name, data, want in (("bad.npz", b"PK nothing of the kind at all", "cannot be used"),
                                 ("lab.safetensors", None, "lab.safetensors")):
            (work / name).write_bytes(data or (root / "examples/data/lab_t5_layer1.safetensors").read_bytes())
            box = other("WebDriver:FindElement", using="css selector", value="#file")
            other("WebDriver:ElementSendKeys", id=next(iter(box.values())), text=str(work / name))
            other.until(f"return document.querySelector('main').textContent.includes('{want}')")
        check("Firefox: a laboratory's file",
              "differs from that in the file by" in other.js("return document.querySelector('main').textContent"))
    finally:
        other.process.terminate()
        other.process.wait(30)
        page.context.close()
