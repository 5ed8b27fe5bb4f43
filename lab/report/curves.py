"""Charts of sweeps: curves for each family of position schemes, and a heat map over positions in the window.
SPDX-License-Identifier: Apache-2.0"""
import math

from results import over

FAMILIES = (("added to the input, or rotated", ("none", "sinusoidal", "learned", "rope", "alibi+rope")),
            ("tables", ("t5", "bucket", "table", "real")),
            ("decay", ("log", "linear", "alibi", "kerple", "fire", "sandwich")),
            ("vectors", ("relkey", "relval", "xl", "band", "deberta")), ("others", ()))


# the schemes of the ranking have the same colour in all of its charts
COLOURS = ("none", "sinusoidal", "learned", "alibi", "kerple", "t5", "rope")


def family(position):
    for n, (_, kinds) in enumerate(FAMILIES):
        if any(position == k or position.split(",")[0].split("+")[0] == k for k in kinds):
            return 0 if position in FAMILIES[0][1] else n
    return len(FAMILIES) - 1


def perplexity_axis(plt, at, low, high):
    at.set_yscale("log", base=2)
    at.set_yticks([2, 2.5, 3, 3.5, 4, *([4.25, 4.5, 4.75] if high < 2 * low else []), 5, 6, 7, 8, 10, 12, 14, 16, 20,
                   24, 32, 48, 64, 96, 128, 256])
    at.set_ylim(low / 1.03, high * 1.03)
    at.yaxis.set_minor_locator(plt.NullLocator())
    at.yaxis.set_major_formatter(lambda y, _: f"{y:g}")


STYLES = ("-o", "--o", ":o", "-.o")


def looks(labels):
    """Return {label: (number of a colour, style of the line)}. Labels "SCHEME, variant" have the colour of the scheme
    and another style for each variant, if all schemes are in COLOURS with at most one variant for each style, or a
    label is the scheme alone."""
    schemes = [label.partition(", ")[0] for label in labels]
    known = set(schemes) <= set(COLOURS) and max(map(schemes.count, schemes)) <= len(STYLES)
    bases = [scheme if known or scheme in labels else label for scheme, label in zip(schemes, labels)]
    colours = COLOURS if known else list(dict.fromkeys(bases))
    found = {}
    for at, (label, base) in enumerate(zip(labels, bases)):
        n, variant = colours.index(base), bases[:at].count(base)
        found[label] = n, STYLES[variant % len(STYLES)] if bases.count(base) > 1 else STYLES[n >= 10]
    return found


def curves(groups, xs_of, ys_of, x_label, y_label, title=None, zoom=0.0, level=None):
    """Return a function that draws one panel for each family of position schemes. All panels have the same axes. With
    zoom, a second panel shows the values from the lowest one to zoom times that, if others are far above. level: (y,
    words), a grey line that is named, or None."""
    panels = {}
    for what, lines in groups.items():
        panels.setdefault(family(what) if len(groups) > 8 else 0, {})[what] = lines

    every = [y for lines in groups.values() for line in lines for y in ys_of(line) if y is not None]
    low_of, high_of = min(every), max(every)
    zoomed = zoom and len(panels) == 1 and high_of > 2 * zoom * low_of
    if zoomed:
        panels[1] = panels[0]
    # panels of families count their colours themselves
    look = looks(list(groups)) if len(panels) == 1 or zoomed else None

    def make(plt):
        columns = 1 if len(panels) == 1 else 2
        figure, axes = plt.subplots(-(-len(panels) // columns), columns,
                                    figsize=(9, 4 if len(panels) == 1 else 3.2 * -(-len(panels) // 2)),
                                    squeeze=False, sharex=True, sharey=not zoomed)
        for at in axes.flat[len(panels):]:
            at.set_axis_off()
        for at, (which, some) in zip(axes.flat, sorted(panels.items())):
            for what, (n, style) in (look or looks(list(some))).items():
                lines = some[what]
                xs = xs_of(lines[0])
                found = [over(lines, lambda line, i=i: ys_of(line)[i]) for i in range(len(xs))]
                points = [(x, *y) for x, y in zip(xs, found) if y]
                if not points:
                    continue
                x, mean, low, high = zip(*points)
                at.plot(x, mean, style, markersize=3, label=what, color=f"C{n}")
                at.fill_between(x, low, high, alpha=0.15, color=f"C{n}")
            at.set_xscale("log", base=2)
            at.grid(alpha=0.3, which="both")
            if level and not which:
                at.axhline(level[0], color="grey", linestyle="--", linewidth=1)
                at.annotate(level[1], (0, level[0]), xycoords=("axes fraction", "data"), fontsize=7, color="grey",
                            xytext=(3, 2), textcoords="offset points")
            if not look:
                at.legend(fontsize=7)
            if len(panels) > 1 and not zoomed:
                at.set_title(FAMILIES[which][0], fontsize=9)
            at.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
            if y_label != "perplexity":
                continue
            perplexity_axis(plt, at, low_of, low_of * zoom if zoomed and which else high_of)
        for at in axes[-1]:
            at.set_xlabel(x_label)
        for at in axes.flat[:len(panels)] if zoomed else axes[:, 0]:
            at.set_ylabel(y_label)
        if title:
            figure.suptitle(title, fontsize=10)
        figure.tight_layout()
        if look:  # below the panels, where it covers no curve
            figure.legend(*axes.flat[0].get_legend_handles_labels(), fontsize=7, handlelength=4, loc="upper center",
                          bbox_to_anchor=(0.5, 0), ncol=min(len(look), 8 if max(map(len, look)) < 20 else 3))
        return figure
    return make


def position_map(some, longest, title=None):
    """Return a function that draws the perplexity of each group in each range of positions of the longest window."""
    def make(plt):
        ranges = next(iter(some.values()))[0]["lengths"][longest]["positions"]
        found = [[over(lines, lambda line, n=n: line["lengths"][longest]["positions"][n]["perplexity"])
                  for n in range(len(ranges))]
                 for lines in some.values()]
        values = [[x[0] if x else math.nan for x in row] for row in found]
        figure, at = plt.subplots(figsize=(8, 0.28 * len(values) + 1))
        drawn = at.imshow([[math.log2(v) for v in row] for row in values], aspect="auto", cmap="cividis")
        middle = (drawn.norm.vmin + drawn.norm.vmax) / 2
        for y, row in enumerate(values):
            for x, v in enumerate(row):
                at.text(x, y, "none" if math.isnan(v) else f"{v:.2f}", ha="center", va="center", fontsize=7,
                        color="white" if math.log2(v) < middle else "black")
        at.set_yticks(range(len(some)), list(some), fontsize=7)
        at.set_xticks(range(len(ranges)), [f"{p['from']:,}-{p['to'] - 1:,}" for p in ranges], fontsize=7)
        at.set_xlabel("position in the window")
        if title:
            at.set_title(title, fontsize=9)
        return figure
    return make
