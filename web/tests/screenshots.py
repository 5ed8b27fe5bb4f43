"""Save a picture of every view, a film of one, and the picture of previews of links.
SPDX-License-Identifier: Apache-2.0"""

import io
import subprocess
import sys
from pathlib import Path

from checks import check, work
from explorer import Page, page_file
from story import STEPS


def screenshots(browser, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for view in (*STEPS, "length", "model", "bias", "sentence", "buckets", "shaw", "rope", "images", "families",
                 "cost"):
        for name, width, scheme in (("", 1280, "light"), ("-dark", 1280, "dark"), ("-narrow", 360, "light")):
            page = Page(browser, viewport={"width": width, "height": 860}, color_scheme=scheme)
            page.show(view, **({"a": "t5,buckets=32,max_distance=128", "b": "alibi", "q": 48, "k": 48} if view == "bias"
                               else {}))
            page.until("relpos.page().csv()?.length > 0")
            page.p.wait_for_timeout(200)
            page.p.screenshot(path=folder / f"{view}{name}.png", full_page=True)
            page.context.close()


def film(browser, path):
    """Save an animated GIF of the step in which a trained model reads a text. Needs Pillow."""
    from PIL import Image

    text, frames = "The cursor is moved to the next line. The cur", []
    page = Page(browser, viewport={"width": 1180, "height": 720})
    page.show("story-model", fresh=True, embed=1)
    page.until("!!relpos.page().numbers()?.loss")

    def shoot(milliseconds, **state):
        page.p.evaluate("state => relpos.change(state)", {"at": -1, "key": -1, **state})
        page.frames()
        page.p.wait_for_timeout(100)
        box = page.p.locator(".picture").bounding_box()
        data = page.p.screenshot(clip={"x": box["x"] + 8, "y": box["y"] + 8, "width": box["width"] - 16,
                                       "height": min(box["height"], 720 - box["y"]) - 16})
        image = Image.open(io.BytesIO(data)).convert("RGB")
        frames.append((image.resize((640, round(image.height * 640 / image.width)), Image.LANCZOS), milliseconds))

    for size in range(15, len(text) + 1, 2):
        shoot(900 if size == len(text) else 160, text=text[:size])
    for head in (9, 6, 0, 8):
        shoot(700, head=head)
    for scheme in ("none", "alibi", ""):
        shoot(1200, scheme=scheme)
    last = len(frames) - 1
    for _ in range(6):  # the model writes on, always the likeliest byte
        page.p.click(".next-bytes > button >> nth=0")
        shoot(250)
    frames[-1] = frames[-1][0], 1500
    page.context.close()
    width, height = frames[15][0].size
    both = Image.new("RGB", (width, 2 * height))  # frames that have all colours: with T5 and with ALiBi
    for n, frame in enumerate((frames[15], frames[last - 1])):
        both.paste(frame[0], (0, n * height))
    colours = both.quantize(140, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    images = [image.quantize(palette=colours, dither=Image.Dither.NONE) for image, _ in frames]
    images[0].save(path, save_all=True, append_images=images[1:], duration=[ms for _, ms in frames], loop=0,
                   optimize=True)


def card(browser, path):
    """Save the picture that previews of links show: the step in which a trained model reads a text, 1200 × 630
    pixels."""
    page = Page(browser, viewport={"width": 1200, "height": 630})
    page.show("story-model", fresh=True, embed=1)
    page.until("!!relpos.page().numbers()?.loss")
    page.frames()
    page.p.wait_for_timeout(300)
    page.p.screenshot(path=path)
    page.context.close()


def hosted(_):
    """Check the tags and the picture of a page that knows its address."""
    bundle = Path(__file__).resolve().parent.parent / "bundle.py"

    def built(url):
        wasm = [page_file.with_name(f"core-{name}.wasm") for name in ("simd128", "relaxed")]
        return subprocess.run([sys.executable, bundle, work / "hosted.html", *wasm, url], capture_output=True,
                              text=True)

    done = built("https://example.org/a/page.html")
    page = (work / "hosted.html").read_text()
    check("hosted: the tags", done.returncode == 0 and all(f'content="https://example.org/a/{name}"' in page
                                                           for name in ("page.html", "relpos-explorer.png")),
          done.stderr)
    check("hosted: the picture beside it",
          (work / "relpos-explorer.png").read_bytes()[16:24] == (1200).to_bytes(4, "big") + (630).to_bytes(4, "big"))
    check("hosted: no address, no tags", "og:url" not in page_file.read_text())
    done = built("example.org")
    check("hosted: not an address", done.returncode != 0 and "must begin with http" in done.stderr, done.stderr)
