"""Draw docs/images/gain-light.svg and gain-dark.svg, the time and memory of a training step by length, from
bench/results/finetune.json. Standard library only.

    python3 bench/gain.py              write both files
    python3 bench/gain.py --check      exit with 1 if a file is stale
SPDX-License-Identifier: Apache-2.0
"""
import sys

from report import check, training, training_sides, write

WIDTH, HEIGHT = 760, 300
TOP, BOTTOM, LEFT, RIGHT = 70, 42, 42, 90  # margins of a panel, which is half of the picture; names are at the right
# theme: text, axes and numbers, grid, relpos, PyTorch
THEMES = {"light": ("#1f2328", "#59636e", "#d8dee4", "#0969da", "#bc4c00"),
          "dark": ("#f0f6fc", "#9198a1", "#3d444d", "#58a6ff", "#f0883e")}


def text(x, y, words, color, anchor="start", size=13, weight="normal"):
    return (f'<text x="{x:g}" y="{y:g}" fill="{color}" text-anchor="{anchor}" font-size="{size}" '
            f'font-weight="{weight}">{words}</text>')


def panel(left, title, unit, step, lines, theme):
    """Draw one panel: lines are (name, color, points of length and value), the winner first. The y axis has a line at
    each multiple of `step`."""
    ink, quiet, grid, *_ = theme
    longest, most = (max(point[axis] for _, _, points in lines for point in points) for axis in (0, 1))
    most = step * -(-most // step)
    x = lambda n: left + LEFT + n / longest * (WIDTH / 2 - LEFT - RIGHT)  # noqa: E731
    y = lambda value: HEIGHT - BOTTOM - value / most * (HEIGHT - TOP - BOTTOM)  # noqa: E731
    out = [text(left + LEFT - 28, TOP - 16, title, ink, weight="bold")]
    for n in range(round(most / step) + 1):
        out += [f'<path d="M{x(0):g} {y(n * step):.1f}H{x(longest):g}" stroke="{grid if n else quiet}"/>',
                text(x(0) - 8, round(y(n * step) + 4, 1), f"{n * step:g}", quiet, "end", 12)]
    out += [text(round(x(n), 1), HEIGHT - BOTTOM + 18, f"{n:,}", quiet, "middle", 12)
            for n in (longest // 4, longest // 2, longest)]
    out.append(text(round(x(longest / 2), 1), HEIGHT - 6, "length in tokens", quiet, "middle", 12))
    for name, color, points in lines:
        path = "L".join(f"{x(n):.1f} {y(value):.1f}" for n, value in points)
        out.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2.5"/>')
        out += [f'<circle cx="{x(n):.1f}" cy="{y(value):.1f}" r="3" fill="{color}"/>' for n, value in points]
        end_x, end_y = x(points[-1][0]) + 10, round(y(points[-1][1]), 1)
        weight = "bold" if name == lines[0][0] else "normal"
        out += [text(end_x, end_y - 2, name, color, weight=weight),
                text(end_x, end_y + 14, f"{points[-1][1]:.1f} {unit}", color, weight=weight)]
    return out


def picture(theme):
    """Return the picture as SVG."""
    data = training()[0]
    model, m = data["problem"]["model"], data["machine"]
    ours, usual = training_sides(data)
    colors = THEMES[theme][3:]
    seconds, gigabytes = ([(name, color, [point[:3:2] if of_memory else point[:2] for point in side])
                           for name, color, side in zip(("relpos", "PyTorch"), colors, (ours, usual))]
                          for of_memory in (False, True))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
           f'height="{HEIGHT}" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
           f"<title>A training step of a T5: {ours[-1][1]:.1f} s and {ours[-1][2]:.1f} GB with relpos, "
           f"{usual[-1][1]:.1f} s and {usual[-1][2]:.1f} GB with PyTorch, for {ours[-1][0]:,} tokens</title>",
           text(14, 24, f"One training step of a T5 with {model['num_layers']} + {model['num_decoder_layers']} layers "
                        f"and random weights, one thread of an {m['cpu']}", THEMES[theme][1]),
           *panel(0, "time, seconds", "s", 10, seconds, THEMES[theme]),
           *panel(WIDTH / 2, "memory, GB", "GB", 2, gigabytes, THEMES[theme]), "</svg>"]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    files = {f"docs/images/gain-{theme}.svg": picture(theme) for theme in THEMES}
    if sys.argv[1:] == ["--check"]:
        check(files, "python3 bench/gain.py")
    else:
        write(files)
