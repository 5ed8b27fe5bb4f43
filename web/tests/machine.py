"""Test both WebAssembly modules, and print their speed without checking it. SPDX-License-Identifier: Apache-2.0"""

from checks import check
from explorer import Page


def modules(browser):
    page = Page(browser)
    page.show("bias", a="t5", b="fire,c=1,L=8", q=40, k=40)
    first, vectors = page.csv(), page.p.evaluate("relpos.core.vectors")
    page.p.add_init_script(
        "const real = WebAssembly.compile; let calls = 0; WebAssembly.compile = (...a) => calls++ ? real(...a) : Promise.reject(new WebAssembly.CompileError('no relaxed SIMD'))"
    )
    page.show("bias", fresh=True, a="t5", b="fire,c=1,L=8", q=40, k=40)
    check(
        "SIMD128 where there is no relaxed SIMD",
        page.p.evaluate("relpos.core.vectors") == "SIMD128" and vectors == "relaxed SIMD",
        vectors,
    )
    check("both modules say the same", page.csv() == first)
    page.context.close()


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
            const step = () => { slider.value = (+slider.max - +slider.min) * (frames % 50 + 5) / 60 + +slider.min; slider.dispatchEvent(new Event('input', {bubbles: true}));
                if (performance.now() - start > 3000) done(frames / (performance.now() - start) * 1000); else { frames++; requestAnimationFrame(step); } };
            requestAnimationFrame(step); })""", label)
        check(f"a moving slider: {state}", page.problem() == "", page.problem())
        print(
            f"    a 512 x 512 map of {state['a']}, {state.get('heads', 1)} head(s), under a moving slider: {rate:.0f} frames a second"
        )
    page.context.close()
