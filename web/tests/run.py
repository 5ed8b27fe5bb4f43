#!/usr/bin/env python3
"""Test the explorer in a browser without network: numbers equal to those of the program, keyboard, narrow screens,
colours, malformed files.

    run.py BUILD [PART...]               run all parts, or only these
    run.py BUILD --screenshots FOLDER    save a picture of every view
    run.py BUILD --film FILE.gif         save the film of docs/images/explorer.gif (needs Pillow)
    run.py BUILD --card FILE.png         save the picture of docs/images/explorer.png

Needs playwright, numpy and axe-playwright-python in the running Python, and chromium (set CHROMIUM to use another
browser). A part is a function in this folder. To run the Python code of the views too, set RELPOS_PYTHON to a Python
that has the package relpos.
SPDX-License-Identifier: Apache-2.0
"""

import os
import shutil
import sys
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

import checks
from address import address
from bias import bias
from buckets import buckets
from cost import cost
from effects import effects
from explorer import Page, page_file
from exports import exports
from families import families
from files import files
from firefox import firefox
from images import images
from length import length
from looks import accessible, colours, labels, minus, names, narrow
from machine import modules, speed
from model import model
from moving import keyboard, navigation
from screens import hands, links, pictures, views
from screenshots import card, film, hosted, screenshots
from sentence import sentence
from sliders import sliders
from story import story
from trained import trained
from vectors import rope, shaw


def run(part, on):
    start, before, bad = time.monotonic(), checks.count, len(checks.failures)
    part(on)
    print(
        f"{'ok' if len(checks.failures) == bad else 'FAILED'} {part.__name__}: {checks.count - before} checks, "
        f"{time.monotonic() - start:.0f} s",
        flush=True,
    )


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(
        executable_path=os.environ.get("CHROMIUM") or shutil.which("chromium"), args=["--no-sandbox"]
    )
    checks.check("less than 2 MB", page_file.stat().st_size < 2_000_000)
    parts = sys.argv[2:]
    if parts[:1] == ["--screenshots"]:
        screenshots(browser, Path(parts[1]))
    elif parts[:1] == ["--film"]:
        film(browser, Path(parts[1]))
    elif parts[:1] == ["--card"]:
        card(browser, Path(parts[1]))
    else:
        page = Page(browser)
        for part in (story, trained, length, model, bias, effects, sentence, buckets, shaw, rope, images, families,
                     cost):
            if not parts or part.__name__ in parts:
                run(part, page)
        page.context.close()
        for part in (pictures, views, links, hands, keyboard, navigation, narrow, labels, colours, minus, names,
                     accessible, address, exports, files, sliders, hosted, modules, firefox, speed):
            if not parts or part.__name__ in parts:
                run(part, browser)
    browser.close()
shutil.rmtree(checks.work)
print(f"{checks.count} checks, {len(checks.failures)} failed; the page has {page_file.stat().st_size} bytes")
sys.exit(1 if checks.failures else 0)
