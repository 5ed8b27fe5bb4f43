"""Test both WebAssembly modules, and print their speed without checking it. SPDX-License-Identifier: Apache-2.0"""

import json
import struct

import numpy as np

from checks import check, work
from explorer import Page


def modules(browser):
    page = Page(browser)
    page.show("bias", a="t5", b="fire,c=1,L=8", q=40, k=40)
    first, vectors = page.csv(), page.p.evaluate("relpos.core.vectors")
    page.p.add_init_script(
        "const real = WebAssembly.compile; let calls = 0; WebAssembly.compile = (...a) => calls++ ? real(...a) : "
        "Promise.reject(new WebAssembly.CompileError('no relaxed SIMD'))"
    )
    page.show("bias", fresh=True, a="t5", b="fire,c=1,L=8", q=40, k=40)
    check(
        "SIMD128 where there is no relaxed SIMD",
        page.p.evaluate("relpos.core.vectors") == "SIMD128" and vectors == "relaxed SIMD",
        vectors,
    )
    check("both modules say the same", page.csv() == first)
    page.context.close()


def long_file(tokens, heads=4, width=64):
    """Write random q and k to a file, and return its path."""
    random, arrays, head, end = np.random.default_rng(7), {}, {}, 0
    for name in ("q", "k"):
        arrays[name] = random.standard_normal((1, heads, tokens, width), dtype=np.float32)
        head[name] = {"dtype": "F32", "shape": arrays[name].shape,
                      "data_offsets": [end, end := end + arrays[name].nbytes]}
    text = json.dumps(head).encode()
    path = work / f"random{tokens}.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(x.tobytes() for x in arrays.values()))
    return path


def speed(browser):
    page = Page(browser)
    ready = sorted(
        int(page.show(view, fresh=True).p.get_attribute("html", "data-ready"))
        for view in ("bias", "sentence", "model")
        for _ in range(3)
    )
    print(f"    ready {ready[0]} to {ready[-1]} ms after the page began to load, median {ready[len(ready) // 2]} ms")
    for state, label in (
        ({"a": "log,lambda=0.3"}, "lambda"),
        ({"a": "t5,buckets=32,max_distance=128"}, "max distance"),
        ({"a": "t5,buckets=32,max_distance=128", "heads": 8}, "max distance"),
        ({"a": "alibi", "heads": 8}, "Position of query 0"),
        ({"a": "fire,c=1,L=8"}, "c"),
        ({"a": "rope"}, "base"),
        ({"a": "relkey,left=8,right=8"}, "left"),
        ({"a": "axialkey,grid=16x32"}, "Query of the curve"),
        ({"a": "xl"}, "Position of query 0"),
    ):
        page.show("bias", **{"q": 512, "k": 512, "heads": 1, **state})
        rate = page.p.evaluate("""label => new Promise(done => {
            const slider = document.querySelector(`input[type=range][aria-label="${label}"]`);
            let frames = 0, start = performance.now();
            const step = () => { slider.value = (+slider.max - +slider.min) * (frames % 50 + 5) / 60 + +slider.min;
            slider.dispatchEvent(new Event('input', {bubbles: true}));
                if (performance.now() - start > 3000) done(frames / (performance.now() - start) * 1000);
                else { frames++; requestAnimationFrame(step); } };
            requestAnimationFrame(step); })""", label)
        check(f"a moving slider: {state}", page.problem() == "", page.problem())
        print(
            f"    a 512 x 512 map of {state['a']}, {state.get('heads', 1)} head(s), under a moving slider: {rate:.0f} "
            "frames a second"
        )
    page.p.add_init_script(
        "globalThis.long = [0]; new PerformanceObserver(list => long.push(...list.getEntries().map(e => "
        "e.duration))).observe({type: 'longtask'})"
    )
    page.show("model", fresh=True, source="minilm", a="t5,table=t5_table", masks="", head=3)
    devtools = page.context.new_cdp_session(page.p)
    devtools.send("Performance.enable")

    def busy():
        return next(x["value"] for x in devtools.send("Performance.getMetrics")["metrics"]
                    if x["name"] == "TaskDuration")

    for what, states in (("head", [{"head": n} for n in range(6)]),
                         ("term", [{"a": a} for a in ("alibi", "log,lambda=0.8", "rope", "alibi")])):
        before = busy()
        for state in states:
            page.p.evaluate("state => relpos.change(state)", state)
            page.frames()
        print(f"    another {what} of 331 tokens: {1000 * (busy() - before) / len(states):.0f} ms of the main thread")
    page.p.evaluate("long.splice(1)")
    page.p.set_input_files("#file", long_file(1024))
    page.until("relpos.state().source === 'file'")
    page.frames()
    page.p.evaluate("relpos.change({a: 'alibi', head: 1})")
    page.frames()
    print(f"    a file of 1,024 tokens: the longest task has {page.p.evaluate('Math.max(...long)'):.0f} ms")
    page.context.close()
