"""Test valid and malformed files that a user opens. SPDX-License-Identifier: Apache-2.0"""

import base64
import io
import json
import re
import struct
import zipfile

import numpy as np

from checks import check, command, fixed, root, work
from explorer import Page
from programs import read_safetensors


def safetensors(arrays, change=lambda head: head, size=None):
    head, data = {}, b""
    for name, x in arrays.items():
        kind = {"float32": "F32", "float64": "F64", "float16": "F16"}[str(x.dtype)]
        head[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(change(head)).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def npz(arrays, save=np.savez):
    to = io.BytesIO()
    save(to, **arrays)
    return to.getvalue()


DROP = """([name, type, text]) => { const data = new DataTransfer(), at = document.elementFromPoint(innerWidth / 2,
    innerHeight / 2);
    data.items.add(new File([Uint8Array.from(atob(text), c => c.charCodeAt(0))], name, {type}));
    const fire = what => at.dispatchEvent(new DragEvent(what, {bubbles: true, cancelable: true, dataTransfer: data}));
    return [fire('dragover'), fire('drop')]; }"""


def anywhere(page):
    """Check that files that are dropped anywhere on the page open in the view that reads them."""
    lab = (root / "examples/data/lab_t5_layer1.safetensors").read_bytes()

    def drop(view, name, kind, data):
        page.show(view)
        handled = page.p.evaluate(DROP, [name, kind, base64.b64encode(data).decode()])
        check(f"{view}: the browser does not open {name}", handled == [False, False], handled)
        page.frames()

    for view in ("story-model", "model", "length"):
        drop(view, "lab.safetensors", "", lab)
        page.until("document.querySelector('main').textContent.includes('lab.safetensors')")
        check(f"{view}: a dropped file opens in Model", page.p.evaluate("relpos.state().source") == "file"
              and "#model" in page.p.url, page.p.url)
    page.p.evaluate("history.back()")
    page.until("!location.hash.startsWith('#model')")
    check("Back returns to the view before", "#length" in page.p.url and page.problem() == "", page.p.url)
    for view, name, kind in (("length", "a.txt", "text/plain"), ("story-order", "b.md", "")):
        drop(view, name, kind, b"The text of a file. " * 9)
        page.until("relpos.state().text.startsWith('The text')")
        check(f"{view}: a dropped text opens in Length", "#length" in page.p.url and page.p.input_value("#long-text")
              == "The text of a file. " * 9, page.p.url)
    for view in ("cost", "model", "story-dials"):
        drop(view, "x.png", "image/png", b"\x89PNG")
        check(f"{view}: a picture is refused", page.problem() == "x.png: drop a text, or a .safetensors or .npz file; "
                                                                 "other files cannot be shown.", page.problem())
    drop("bias", "empty.npz", "", b"")
    page.until("document.querySelector('.drop .problem').textContent !== ''")
    check("a dropped file that cannot be read says why", "cannot be used" in page.problem(), page.problem())


def files(browser):
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, 2, 6, 4)).astype(np.float32) for _ in range(3))
    good = {"q": q, "k": k, "v": v}

    def edit(name, **what):
        return lambda head: {**head, name: {**head[name], **what}}

    archive = npz(good, np.savez_compressed)
    lie = bytearray(npz(good))
    at = lie.rindex(b"PK\x01\x02")
    lie[at + 42 : at + 46] = struct.pack("<I", 0x7FFFFFFF)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("q.npy", b"\0" * 300_000_000)
    small = bytearray(npz({"q": np.zeros((1, 2, 500, 64))}, np.savez_compressed))
    for mark in (b"PK\x01\x02",):  # the entry claims an unpacked size of 100 bytes
        small[small.index(mark) + 24 : small.index(mark) + 28] = struct.pack("<I", 100)
    hostile = {
        "empty.npz": b"",
        "short.safetensors": b"\1\2\3",
        "noise.npz": rng.bytes(5000),
        "zeros.safetensors": bytes(4096),
        "text.safetensors": b"hello, this is no file of arrays at all\n" * 9,
        "header.safetensors": safetensors(good, size=1 << 62),
        "json.safetensors": struct.pack("<Q", 20) + b"{" * 20 + bytes(40),
        "list.safetensors": struct.pack("<Q", 24) + b"[1, 2, 3]".ljust(24) + bytes(40),
        "deep.safetensors": struct.pack("<Q", 200000) + b"[" * 200000,
        "offsets.safetensors": safetensors(good, edit("q", data_offsets=[0, 1 << 40])),
        "negative.safetensors": safetensors(good, edit("q", data_offsets=[-8, 184])),
        "backward.safetensors": safetensors(good, edit("q", data_offsets=[192, 0])),
        "shape.safetensors": safetensors(good, edit("q", shape=[1, 2, 60000, 4])),
        "same.safetensors": safetensors(good, edit("k", data_offsets=[0, 192])),
        "over.safetensors": safetensors(good, edit("v", data_offsets=[380, 572])),
        "hole.safetensors": safetensors({"q": q, "x": v, "k": k},
                                        lambda head: {n: x for n, x in head.items() if n != "x"}),
        "after.safetensors": safetensors(good) + b"more",
        "three.safetensors": safetensors(good, edit("q", data_offsets=[0, 192, 192])),
        "batch.safetensors": safetensors({**good, "v": v[:0].copy()}),
        "vheads.safetensors": safetensors({**good, "v": v[:, :1].copy()}),
        "out.safetensors": safetensors({**good, "out": q[:0].copy()}),
        "many.safetensors": safetensors({**good, "x": np.zeros(33_000_000, np.float16)}),
        "fraction.safetensors": safetensors(good, edit("q", shape=[1, 2, 1.5, 16])),
        "words.safetensors": safetensors(good, edit("q", shape=["1", "2"])),
        "huge.safetensors": safetensors(good, edit("q", shape=[1 << 31, 1 << 31, 1 << 31, 4])),
        "null.safetensors": safetensors(good, lambda head: {**head, "q": None}),
        "proto.safetensors": safetensors(good, lambda head: {"__proto__": {"q": 1}, "constructor": head["k"]}),
        "axes.safetensors": safetensors({"q": q[0], "k": k[0]}),
        "noq.safetensors": safetensors({"x": q}),
        "widths.safetensors": safetensors({"q": q, "k": k[..., :3].copy()}),
        "heads.safetensors": safetensors({"q": q, "k": np.repeat(k, 2, 1)[:, :3].copy()}),
        "long.safetensors": safetensors({"q": np.zeros((1, 1, 2000, 4), np.float32),
                                         "k": np.zeros((1, 1, 2000, 4), np.float32)}),
        "nothing.safetensors": safetensors({"q": q[:, :, :0].copy(), "k": k}),
        "cut.safetensors": safetensors(good)[:-100],
        "cut.npz": archive[: len(archive) // 2],
        "tail.npz": archive[:-30],
        "lie.npz": bytes(lie),
        "bomb.npz": bomb.getvalue(),
        "small.npz": bytes(small),
        "flip.npz": archive[:200] + bytes(b ^ 0xFF for b in archive[200:400]) + archive[400:],
        "object.npz": npz({"q": np.array([{}, 1], dtype=object)}),
        "fortran.npz": npz({"q": np.asfortranarray(rng.standard_normal((1, 2, 6, 4))), "k": k}),
    }
    page = Page(browser)
    page.show("model", source="minilm", a="alibi")
    before = page.csv()
    for name, data in hostile.items():
        (work / name).write_bytes(data)
        page.p.evaluate("document.querySelector('.drop .problem').textContent = ''")
        page.p.set_input_files("#file", work / name)
        page.until("document.querySelector('.drop .problem').textContent !== ''")
        said = page.problem()
        check(f"{name}: refused with a sentence", said.startswith("the file cannot be used: ") and 30 < len(said) < 400,
              said)
    page.frames()
    check("the page is as it was", page.csv() == before)
    for name, data in {
        "good.safetensors": safetensors(good),
        "good.npz": npz(good),
        "packed.npz": archive,
        "half.npz": npz({n: x.astype(np.float16) for n, x in good.items()}),
    }.items():
        (work / name).write_bytes(data)
        page.p.set_input_files("#file", work / name)
        page.until(f"document.querySelector('main').textContent.includes('{name}')")
        page.frames()
        page.p.evaluate("relpos.change({head: 1, query: 3, a: 'alibi'})")
        page.frames()
        found = json.loads(command(f"relpos explain --input {name} --head 1 --query 3 --bias alibi --json"))
        check(f"{name}: its weights", fixed([row[4] for row in page.csv()[1:]]) == fixed(found["weights"]),
              page.problem())
    real = (root / "examples/data/lab_t5_layer1.safetensors").read_bytes()

    def dropped(name, data):
        (work / name).write_bytes(data)
        page.show("model", source="minilm", a="alibi", masks="")
        page.p.set_input_files("#file", work / name)
        page.until(f"document.querySelector('main').textContent.includes('{name}')")
        page.frames()
        return page.p.evaluate("relpos.state()"), page.p.text_content("main")

    for name, tokens, want in (
        ("named.npz", np.array(["The", "naïve", "😀", "", '"<b>'] + ["x"] * (good["k"].shape[2] - 5)),
         ["The", "naïve", "😀", "", '"<b>']),
        ("big.npz", np.array([f"w{j}" for j in range(good["k"].shape[2])]).astype(">U4"), ["w0", "w1"]),
        ("few.npz", np.array(["one"]), ["0", "1"]),
        ("pairs.npz", np.array([["a", "b"]] * good["k"].shape[2]), ["0", "1"]),
    ):
        dropped(name, npz({**good, "tokens": tokens}))
        mine = page.p.evaluate("[...document.querySelectorAll('.words button')].map(b => b.textContent)")[: len(want)]
        check(f"{name}: the names of the tokens", mine == want, mine)
        found = json.loads(command(f"relpos explain --input {name} --query 0 --bias alibi --json"))["tokens"]
        check(f"{name}: the same as the program's", found[: len(want)] == want, found)
    size = struct.unpack("<Q", real[:8])[0]
    meta = json.loads(real[8 : 8 + size])

    def with_options(text):
        head = {**meta, "__metadata__": {**meta["__metadata__"], "options": text}}
        if text is None:
            del head["__metadata__"]["options"]
        packed = json.dumps(head).encode()
        return struct.pack("<Q", len(packed)) + packed + real[8 + size :]

    now, said = dropped("lab.safetensors", real)
    check("a laboratory's file brings its options", "table=t5.table" in now["a"] and now["masks"] == "causal"
          and now["query"] == 60, now)
    for head in range(4):
        page.p.evaluate("head => relpos.change({head, query: 40})", head)
        page.frames()
        found = json.loads(
            command(page.code().splitlines()[1].replace("--brief", "--json").replace("relpos-heads.safetensors",
                                                                                     "lab.safetensors"))
        )
        check(f"lab.safetensors: weights of head {head}",
              fixed([row[4] for row in page.csv()[1:]]) == fixed(found["weights"]))
        far = float(re.search(r"that in the file by at most ([\d.e-]+)\.", page.p.text_content("main"))[1])
        check(f"lab.safetensors: the output of head {head} is the model's", far < 1e-5, far)
    page.p.evaluate("relpos.change({a: 'alibi'})")
    page.frames()
    far = page.p.evaluate("relpos.page().numbers().far")
    check("another term: another output", far > 0.01, far)
    page.p.evaluate("relpos.change({a: 't5,bidirectional=0,table=t5.table', scale: 1})")
    page.frames()
    page.download("Save the arrays")
    found = json.loads(command(page.code().splitlines()[1].replace("--brief", "--json")))
    check(
        "a scale of its own",
        " --scale 1 " in page.code() and fixed([row[4] for row in page.csv()[1:]]) == fixed(found["weights"]),
    )
    for name, text, want in (
        ("two.safetensors", "--bias t5,bidirectional=0,table=t5.table --bias log,lambda=0.1 --scale 1 --causal", None),
        ("rope.safetensors", "--rope base=100 --causal", None),
        ("unknown.safetensors", "--bias t5,table=t5.table --segments labels", "--segments is not supported here"),
        ("window.safetensors", "--bias t5,table=t5.table --window 3,0", None),
        ("three.safetensors", "--bias log --bias log --bias log", "supports two"),
        ("absent.safetensors", "--bias t5,table=nothing", "no array of the file is called nothing"),
        ("constructor.safetensors", "--bias constructor", "Choose a term"),
        ("nonsense.safetensors", "--bias <img/src=x/onerror=alert(1)>", "Choose a term"),
        ("wrong.safetensors", "--bias t5,buckets=7,table=t5.table", "Choose a term"),
    ):
        now, said = dropped(name, with_options(text))
        if want:
            check(f"{name}: said and left out", want in said and now["a"] in ("alibi", "") and page.problem() == "",
                  said[-300:])
        else:
            expect = text.replace("--bias ", "").replace("--rope ", "rope,").split(" --")[0].split()
            check(f"{name}: taken", [now["a"], now["b"]][: len(expect)] == expect and page.problem() == "", now)
    odd = {**good, "q": q.copy()}
    odd["q"][0, 0, 3, 1], odd["q"][0, 1, 2, 0] = np.nan, np.inf
    now, said = dropped("odd.safetensors", safetensors(odd))
    check("NaN and infinity are reported", "Not every number of the file is finite: 2 of q" in said
          and page.problem() == "", said[:300])
    page.p.evaluate("relpos.change({head: 0, query: 3, a: 'alibi', masks: 'causal'})")
    page.frames()
    read = lambda: page.p.locator("main figure:not([hidden]) .readout").first.text_content()
    check("NaN is no mask", read().endswith("not a number"), read())
    page.p.focus("main figure:not([hidden]) canvas[tabindex]")
    page.p.keyboard.press("End")
    page.frames()
    check("a mask is no NaN", read().endswith("masked"), read())
    shapes = safetensors({**good, "t5.table": np.ones((7, 3), np.float32)})
    for name, data in (("seven.safetensors", shapes),
                       ("scale.safetensors", with_options("--bias t5,table=t5.table --scale 1e308"))):
        now, said = dropped(name, data)
        page.frames()
        check(f"{name}: said and left out", "Choose a term" in said and now["source"] == "file"
              and page.problem() == "", f"{now} {said[-300:]}")
        saved = read_safetensors(page.download("Save the arrays"))["q"].size
        check(f"{name}: what is on the screen is saved",
              f"{saved // (2 * 4 if 'seven' in name else 4 * 32)} tokens" in said, saved)
    names = np.frombuffer(rng.standard_normal(9 * 4).tobytes()).reshape(9, 4)
    (work / "vectors.safetensors").write_bytes(safetensors({**good, "relkey.table": names}))
    page.p.set_input_files("#file", work / "vectors.safetensors")
    page.until("document.querySelector('main').textContent.includes('vectors.safetensors')")
    page.p.select_option("#b-kind", "")
    page.p.select_option("#a-kind", "relkey")
    page.frames()
    page.p.evaluate("relpos.change({a: 'relkey,left=4,right=4,table=relkey.table', head: 1, query: 5})")
    page.frames()
    found = json.loads(command("relpos explain --input vectors.safetensors --head 1 --query 5 --relkey "
                               "table=relkey.table,left=4,right=4 --json"))
    check("vectors of a file", fixed([row[4] for row in page.csv()[1:]]) == fixed(found["weights"]), page.problem())
    page.p.select_option("#a-kind", "xl")
    page.frames()
    check("arrays that are not there are filled, and the page says so", page.problem() == ""
          and "Without arrays, the numbers are random" in page.p.text_content("main"), page.problem())
    now, said = dropped("bare.safetensors", with_options(None))
    check("names of arrays tell the term", now["a"] == "t5,table=t5.table"
          and "other parameters have their defaults" in said, now)
    page.p.evaluate("relpos.change({a: 't5,table=none'})")
    page.frames()
    check("an array that is not there", "no array of the file is called none" in page.problem(), page.problem())
    anywhere(page)
    page.context.close()
