#!/usr/bin/env python3
"""Build the explorer's page from web/: the modules that app.js imports, the style, the WebAssembly builds, and data.
Standard library only.

    bundle.py OUT SIMD128.wasm RELAXED.wasm [URL]

With URL, the address at which the page will be, links to it get a preview in messengers and social networks, and the
picture of the preview is copied to relpos-explorer.png beside OUT: put both files at that address.

The data are the terms from tools/terms.py, the numbers of worked examples from tests/golden/golden.h, heads of trained
models from examples/data, models of lab/model with weights of 5 to 7 bits, a text for them, and how well they predict
that text. The modules are ES modules. The script supports only `import {a, b} from './x.js';`, `export const`, `export
function` and `export class`, at the beginning of a line.
SPDX-License-Identifier: Apache-2.0
"""

import base64
import html
import json
import re
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

web = Path(__file__).resolve().parent
root = web.parent
# Limit for the size of the page. 1.08 MB of it are weights of models, 0.44 MB the library, 0.15 MB the script. It was
# 2,000,000, and was raised for second derivatives, sinks of rows, lookup and angles of RoPE.
MAX_BYTES = 2_100_000
# The model of the story and those of the view Length, and the levels of their weights: these are rounded to integers
# from -levels to levels times a scale, so that the perplexity rises by less than 1 %.
MODELS = {"vim": 15, "length/t5": 31, "length/none": 63, "length/alibi": 31, "length/rope": 63, "length/learned": 63}


def inline(text):
    text = html.escape(text, quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
    # keep only the text of a link, because the page has no other pages
    return re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text)


def markdown(text):
    """Convert the Markdown of docs/terms to HTML: paragraphs, tables, indented code, code, bold."""
    out = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.splitlines()
        if all(line.startswith("    ") for line in lines):
            out.append("<pre tabindex=0>" + html.escape("\n".join(line[4:] for line in lines), quote=False) + "</pre>")
        elif lines[0].startswith("|"):
            rows = [[inline(cell.strip()) for cell in line.strip().strip("|").split("|")] for line in lines]
            body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows[2:])
            out.append(
                "<div class=scroll tabindex=0><table><tr>" + "".join(f"<th>{cell}</th>" for cell in rows[0])
                + f"</tr>{body}</table></div>"
            )
        else:
            out.append("<p>" + inline("\n".join(lines)) + "</p>")
    return "".join(out)


def terms():
    facts = json.loads(
        subprocess.run([sys.executable, root / "tools/terms.py", "--json"], check=True, capture_output=True).stdout
    )
    for term in facts.values():
        term["html"] = markdown(term.pop("text"))
        term["said"] = [inline(said) for said in term["said"]]
        term["arrays"] = [inline(said) for said in term.pop("said_arrays")]
        for unread in ("bench", "form", "option"):
            del term[unread]
    return facts


def golden():
    """Return {name: (shape, numbers)} of arrays in golden.h."""
    found = re.findall(
        r"/\* \[([\d, ]+)\][^/]*\*/\s*static const \w+ (\w+)\[\d+\] = \{([^}]*)\}",
        (root / "tests/golden/golden.h").read_text()
    )
    keep = r"SHAW_(Q|K|V|A_K|A_V|PAIRS|NOISE)|VIT3_(X|BIAS_TABLE|SHAW_TABLE|SLOPE)|VIT4_(X|PLACED|BIAS)|CAT_LAMBDA"
    return {
        name: {"shape": [int(n) for n in shape.split(",")],
               "data": [float(x) for x in re.findall(r"[-+\w.]+", numbers)]}
        for shape, name, numbers in found
        if re.fullmatch(keep, name)
    }


def contents(name):
    """Return the bytes of the arrays of a .safetensors file in examples/data, and its header."""
    data = (root / "examples/data" / name).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return data[8 + size :], json.loads(data[8 : 8 + size])


def floats(data, array):
    """Return the numbers of an f32 array with the header entry `array`."""
    first, last = array["data_offsets"]
    return struct.unpack(f"<{(last - first) // 4}f", data[first:last])


def arrays_of(name, wanted):
    """Return arrays of a file in examples/data, rounded to f16 to keep the page small, and its metadata."""
    data, head = contents(name)
    result = {}
    for array in wanted:
        numbers = floats(data, head[array])
        result[array] = {
            "shape": head[array]["shape"],
            "f16": base64.b64encode(struct.pack(f"<{len(numbers)}e", *numbers)).decode(),
        }
    return result, head["__metadata__"]


def heads_of(name, levels):
    """Return q and k of a file in examples/data, and its metadata. Each vector is a half-precision scale times integers
    from -levels to levels: first all scales, then all integers."""
    arrays, (data, head) = {}, contents(name)
    for array in ("q", "k"):
        numbers, width = floats(data, head[array]), head[array]["shape"][-1]
        rows = [rounded(numbers[n : n + width], levels) for n in range(0, len(numbers), width)]
        scales = struct.pack(f"<{len(rows)}e", *(scale for scale, _ in rows))
        arrays[array] = {"shape": head[array]["shape"],
                         "bytes": scales + b"".join(struct.pack(f"{width}b", *row) for _, row in rows)}
    return arrays, head["__metadata__"]


def model():
    """Return q and k of the heads of gettysburg.safetensors, and its words."""
    arrays, said = heads_of("gettysburg.safetensors", 63)
    return {"arrays": {**arrays_of("gettysburg.safetensors", ("t5_table",))[0], **arrays},
            "tokens": json.loads(said["tokens"])}


def facts_of(values):
    """Return values as unpackObject in core.js reads them: the size of a JSON text, the text, and then all bytes, whose
    places the JSON has. Compressed, bytes need less space than as a text."""
    all_bytes = bytearray()

    def place(data):
        all_bytes.extend(data)
        return [len(all_bytes) - len(data), len(all_bytes)]

    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=place, allow_nan=False)
    return struct.pack("<I", len(text.encode())) + text.encode() + bytes(all_bytes)


def lab():
    """Return q, k and the table of each layer of a model trained by relpos lab, its tokens, and the options of its
    attention."""
    layers = []
    for name in ("lab_t5_layer0.safetensors", "lab_t5_layer1.safetensors"):
        heads, said = heads_of(name, 127)
        layers.append({**heads, **arrays_of(name, ("t5.table",))[0]})
    return {"layers": layers, "tokens": json.loads(said["tokens"]), "options": said["options"]}


def window():
    """Return the table that examples/data/train_window.py trained, and its errors."""
    data, head = contents("window.safetensors")
    [(name, array)] = [item for item in head.items() if item[0] != "__metadata__"]
    numbers = floats(data, array)
    side = round((array["shape"][0] ** 0.5 + 1) / 2)
    return {"shape": array["shape"], "data": [round(x, 4) for x in numbers], "side": side,
            "errors": json.loads(head["__metadata__"]["errors"])}


def checksum(z, data):
    """Continue the checksum z of models/io over `data`."""
    whole, every = len(data) // 8, (1 << 64) - 1
    for word in struct.unpack_from(f"<{whole}Q", data):
        z = (z ^ word) * 0x9E3779B97F4A7C15 & every
        z ^= z >> 29
    rest = data[8 * whole :]
    z ^= int.from_bytes(rest, "little") ^ len(rest) << 56
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ z >> shift) * factor & every
    return z ^ z >> 31


def rounded(row, levels):
    """Return a half-precision scale and integers from -levels to levels, whose products approximate the numbers of a
    row."""
    [scale] = struct.unpack("<e", struct.pack("<e", max(map(abs, row)) / levels or 1))
    return scale, [min(max(round(x / scale), -levels), levels) for x in row]


class Rounded:
    """A model of lab/model with rounded weights: each row of a matrix is a half-precision number times integers."""

    def __init__(self, name):
        data, head = contents(f"../../lab/model/{name}.safetensors")
        said = head.pop("__metadata__")
        self.said = {key: said[key] for key in ("relpos.lab", "step")}
        self.shapes = {array_name: array["shape"] for array_name, array in head.items()}
        self.halves, self.integers, self.scaled, self.weights = [], bytearray(), [], []
        for array_name, array in head.items():
            first, last = array["data_offsets"]
            numbers = struct.unpack(f"<{(last - first) // 2}e", data[first:last])
            if ".weight" not in array_name or len(array["shape"]) < 2:
                self.halves += numbers
            else:
                rows, columns = array["shape"]
                self.scaled.append(array_name)
                kept = []
                for r in range(rows):
                    scale, whole = rounded(numbers[r * columns : (r + 1) * columns], MODELS[name])
                    self.halves.append(scale)
                    self.integers += struct.pack(f"{columns}b", *whole)
                    kept += [scale * x for x in whole]
                numbers = kept
            self.weights.append(struct.pack(f"<{len(numbers)}f", *numbers))
        sum_ = checksum(checksum(1, self.said["relpos.lab"].encode()), self.said["step"].encode())
        for array in self.weights:
            sum_ = checksum(sum_, array)
        self.checksum = f"{sum_:016x}"  # of the file with these weights in f32

    def packed(self):
        """Return what trained.js reads, for facts_of; `bytes` has the half-precision numbers and the integers, one in a
        byte."""
        return {
            "config": self.said["relpos.lab"],
            "step": self.said["step"],
            "checksum": self.checksum,
            "halves": len(self.halves),
            "scaled": self.scaled,
            "arrays": list(self.shapes.items()),
            "bytes": struct.pack(f"<{len(self.halves)}e", *self.halves) + bytes(self.integers),
        }

    def file(self):
        """Return a .safetensors file with these weights in f32, as the page saves it."""
        head, end = {"__metadata__": {**self.said, "checksum": self.checksum}}, 0
        for (name, shape), array in zip(self.shapes.items(), self.weights):
            head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + len(array)]}
            end += len(array)
        text = json.dumps(head, allow_nan=False).encode()
        return struct.pack("<Q", len(text)) + text + b"".join(self.weights)


def packed_models(models):
    return packed(facts_of({"models": [model.packed() for model in models]}))


def modules(name, done):
    """Return {name: text} of the modules. Each module follows those that it imports."""
    text = (web / name).read_text()
    for other in re.findall(r"^import [^;]*?from '(\./|\.\./)([^']+)';", text, re.M):
        path = str((web / name).parent.joinpath("".join(other)).resolve().relative_to(web))
        if path not in done:
            done.setdefault(path, None)
            modules(path, done)
    done.pop(name, None)
    done[name] = text
    return done


def without_exports(text):
    """Return the text of a module without the word export, comments and indentation. A template literal must not
    contain a line end, except within ${ and }. A comment after code follows two spaces."""
    text = re.sub(r"^ *(?:/\*\*(?:(?!\*/).)*\*/|//[^\n]*)\n", "", re.sub(r"^export ", "", text, flags=re.M),
                  flags=re.M | re.S)
    return re.sub(r"\n\s+", "\n", re.sub(r"(?<=\S)  // .*$", "", text, flags=re.M))


def script():
    parts = []
    for name, text in modules("app.js", {}).items():

        def imported(m):
            path = (web / name).parent.joinpath(m[2]).resolve().relative_to(web)
            return f"const {{{m[1].replace(' as ', ': ')}}} = modules['{path}'];"

        exported = re.findall(r"^export (?:async )?(?:const|function|class) (\w+)", text, re.M)
        text = re.sub(r"^import \{([^}]*)\} from '([^']+)';", imported, text, flags=re.M)
        text = without_exports(text)
        if re.search(r"^(import|export)\b", text, re.M):
            sys.exit(f"bundle.py: {name}: a form of import or export that is not supported")
        parts.append(f"modules['{name}'] = await (async () => {{\n{text}\nreturn {{{', '.join(exported)}}};\n}})();")
    return "const modules = {};\n" + "\n".join(parts)


def difference(base, other):
    """Encode `other` as pieces of `base` and new bytes. The result is the number of pieces; for each piece, the number
    of new bytes before it, its start in `base` and its length; then the new bytes. Integers have 32 bits,
    little-endian."""
    key, pieces, own, at, last = 16, [], b"", 0, 0
    places = {}
    for n in range(len(base) - key + 1):
        places.setdefault(base[n : n + key], []).append(n)

    def length(n):
        k = key
        while base[n + k : n + k + 1] == other[at + k : at + k + 1] != b"":
            k += 1
        return k

    while at < len(other):
        near = places.get(other[at : at + key], [])[:8]
        if not near:
            at += 1
            continue
        best = max(near, key=length)
        pieces += [at - last, best, length(best)]
        own += other[last:at]
        last = at = at + length(best)
    pieces += [at - last, 0, 0]
    return struct.pack(f"<{len(pieces) + 1}I", len(pieces) // 3, *pieces) + own + other[last:]


DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"  # of base64.b85encode


def packed(data):
    """Compress data, and write it with characters as unpack.js reads them."""
    maker = zlib.compressobj(9, wbits=-15)
    text = base64.b85encode(maker.compress(data) + maker.flush()).decode()
    return text.translate({ord(digit): chr(40 + n).replace("<", "~") for n, digit in enumerate(DIGITS)})


def style(name):
    """Return a style sheet without comments and indentation."""
    return re.sub(r"\n\s+", "\n", re.sub(r"/\*.*?\*/", "", (web / name).read_text(), flags=re.S))


def held_out():
    """Return 8,193 bytes of Vim's help that the trained model has not seen, from the beginning of a line."""
    data = (root / "lab/data/vim.txt").read_bytes()
    first = data.index(b"\n", len(data) * 9 // 10) + 1
    return data[first : first + 8193].decode()


def checksum_of(data):
    return f"{checksum(1, data):016x}"


def lengths(models, text):
    """Return the losses that web/lengths.py measured: the size of the parts of the text, and for each scheme the mean
    loss of each part."""
    stored = json.loads((web / "lengths.json").read_text())
    if (stored.pop("models"), stored.pop("text")) != ([model.checksum for model in models], checksum_of(text.encode())):
        sys.exit("bundle.py: web/lengths.json belongs to other models or another text (measure again: web/lengths.py "
                 "BUILD)")
    return stored


def preview(url):
    """Return the tags that messengers and social networks read: the address of the page, and of the picture beside
    it."""
    if not re.fullmatch(r"https?://[^\s\"'<>]+", url):
        sys.exit(f"bundle.py: the address is {url}, but must begin with http:// or https:// and have no spaces or "
                 "quotes")
    tags = {
        "og:url": url,
        "og:image": url.rsplit("/", 1)[0] + "/relpos-explorer.png",
        "og:image:width": 1200,
        "og:image:height": 630,
        "og:image:alt": "A trained model reads a text: the attention of all heads, and the next byte",
        "twitter:card": "summary_large_image",
    }
    return "\n".join(f'<meta property="{name}" content="{html.escape(str(content))}">'
                     for name, content in tags.items())


def main(out, simd128, relaxed, url=""):
    tags = preview(url) if url else ""
    models, text = [Rounded(name) for name in MODELS], held_out()
    facts = {"terms": terms(), "golden": golden(), "model": model(), "lab": lab(), "window": window()}
    facts |= {"text": text, "lengths": lengths(models, text)}
    page, plain = (web / "explorer.html").read_text(), Path(simd128).read_bytes()
    for mark, text in {
        "STYLE": style("explorer.css"),
        "DARK": style("dark.css"),
        "SIMD128": packed(plain),
        "RELAXED": packed(difference(plain, Path(relaxed).read_bytes())),  # the two builds differ only in some kernels
        "TRAINED": packed_models(models[:1]),  # apart, because the story needs only this model
        "SMALL": packed_models(models[1:]),
        "FACTS": packed(facts_of(facts)),
        "SCRIPT": packed(script().encode()),
        "UNPACK": without_exports((web / "unpack.js").read_text()),
    }.items():
        if page.count(f"@{mark}@") != 1:
            sys.exit(f"bundle.py: explorer.html must contain @{mark}@ exactly once")
        page = page.replace(f"@{mark}@", text)
    if url:
        page = page.replace('<link rel="icon"', tags + '\n<link rel="icon"', 1)
        shutil.copyfile(root / "docs/images/explorer.png", Path(out).with_name("relpos-explorer.png"))
    data = page.encode()
    if len(data) > MAX_BYTES:
        sys.exit(f"bundle.py: the page has {len(data)} bytes, at most {MAX_BYTES} are allowed")
    Path(out).write_bytes(data)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    main(*sys.argv[1:])
