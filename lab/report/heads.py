"""Section on relpos lab inspect: the position scores and attention weights of each head, by distance.
SPDX-License-Identifier: Apache-2.0"""
from results import short


def inspected(page, lines):
    page.text("The score of a query and a key is the sum of a position part, which the terms of the model add, and a "
              "content part, their product without the terms. The position "
              "fraction is the variance of the position part over the keys, summed over queries, divided by that sum "
              "for both parts.")
    rows, shown_distances = [], range(min(6, *(len(line["distances"]) for line in lines)))
    for line in lines:
        for layer, heads in enumerate(line["layers"]):
            for h, head in enumerate(heads):
                rows.append([f"{short(line['inspect'])}, layer {layer}, head {h}", f"{100 * head['share']:.1f} %",
                             f"{head['distance']:.1f}",
                             *[f"{100 * head['weight'][d]:.2f} %" for d in shown_distances]])
    page.table(["", "position fraction", "mean distance", *[f"weight at {-d}" for d in shown_distances]], rows)
    page.text(f"The weight columns show the mean attention weight at the offsets 0 to {-shown_distances[-1]}, over all "
              "pairs with that offset.")

    def make(plt):
        figure, axes = plt.subplots(len(lines), 2, figsize=(9, 2.4 * len(lines)), squeeze=False, sharex=True)
        for (left, right), line in zip(axes, lines):
            middle = [(a + b) / 2 + 1 for a, b in line["distances"]]
            for layer, heads in enumerate(line["layers"]):
                for h, head in enumerate(heads):
                    top = max(head["position"])
                    left.plot(middle, [p - top for p in head["position"]], "-" if layer == 0 else "--", color=f"C{h}",
                              linewidth=1, label=f"layer {layer}, head {h}")
                    right.plot(middle, head["weight"], "-" if layer == 0 else "--", color=f"C{h}", linewidth=1)
            left.set_title(f"{short(line['inspect'])}: what position adds to a score", fontsize=8)
            right.set_title("mean weight", fontsize=8)
            right.set_yscale("log")
            for at in (left, right):
                at.axvline(line["trained"], color="grey", linewidth=0.7, linestyle=":")
                at.set_xscale("log", base=2)
                at.xaxis.set_major_formatter(lambda x, _: f"{x - 1:g}")
                at.grid(alpha=0.3)
        axes[0][0].legend(fontsize=6, ncols=2)
        for at in axes[-1]:
            at.set_xlabel("distance (dotted: as far as training went)")
        figure.tight_layout()
        return figure
    page.picture(make, "what position adds to the scores of each head, and the mean weight, by distance")

    def heads_map(plt):
        figure, axes = plt.subplots(len(lines), 1, figsize=(9, 1.5 * len(lines) + 0.4), squeeze=False)
        for at, line in zip(axes.flat, lines):
            heads = [h for layer in line["layers"] for h in layer]
            drawn = at.imshow([[p - max(h["position"]) for p in h["position"]] for h in heads], aspect="auto",
                              cmap="cividis", interpolation="nearest")
            figure.colorbar(drawn, ax=at)
            at.set_yticks(range(len(heads)), [f"{n}.{h}" for n, layer in enumerate(line["layers"])
                                              for h in range(len(layer))], fontsize=6)
            ticks = [n for n, (a, _) in enumerate(line["distances"]) if a & (a - 1) == 0]
            at.set_xticks(ticks, [f"{line['distances'][n][0]:,}" for n in ticks], fontsize=7)
            at.set_title(f"{short(line['inspect'])}: what position adds, by head (layer.head) and distance", fontsize=8)
        figure.tight_layout()
        return figure
    page.picture(heads_map, "heat maps of what position adds, by head and distance")

    page.heading("Pairs that do not occur in training", 3)
    page.text("The fraction of the pairs in a window 2, 4 and 8 times as long as in training whose positions (for "
              "absolute schemes) or whose offset "
              "(for relative schemes) do not occur in training. With clipped offsets, or one bucket for all large "
              "distances, there are no such pairs.")
    rows = []
    for n in (128, 512):
        for m in (2 * n, 4 * n, 8 * n):
            rows.append([f"{n:,} to {m:,}", f"{100 * (1 - n * n / m / m):.1f} %",
                         f"{100 * (m - n) * (m - n + 1) / m / m:.1f} %", "0 %"])
    page.table(["trained, read", "absolute positions", "offsets", "clipped offsets, buckets"], rows)
