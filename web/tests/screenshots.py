"""Save a picture of every view. SPDX-License-Identifier: Apache-2.0"""

from explorer import Page
from story import STEPS


def screenshots(browser, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for view in (*STEPS, "bias", "sentence", "buckets", "shaw", "rope", "images", "families", "cost", "model"):
        for name, width, scheme in (("", 1280, "light"), ("-dark", 1280, "dark"), ("-narrow", 360, "light")):
            page = Page(browser, viewport={"width": width, "height": 860}, color_scheme=scheme)
            page.show(view, **({"a": "t5,buckets=32,max_distance=128", "b": "alibi", "q": 48, "k": 48} if view == "bias" else {}))
            page.p.wait_for_timeout(200)
            page.p.screenshot(path=folder / f"{view}{name}.png", full_page=True)
            page.context.close()
