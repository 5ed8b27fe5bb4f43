"""Sections on the results of lab/oracle.py: the time of a training step and the losses of complete training runs,
compared with the same model in PyTorch.
SPDX-License-Identifier: Apache-2.0"""
import statistics

from results import short


def beside_torch(page, lines):
    page.text("Time of a training step of a model of bytes with 4 layers, width 256 and 4 heads, alternating with the "
              "same model in PyTorch, on one thread: medians, with the fastest and "
              "the slowest step in brackets. The last column is PyTorch's time divided by relpos's.")

    def times(x):
        return f"{x[0]:,.0f} ms ({x[1]:,.0f} to {x[2]:,.0f})"
    page.table(["position, batch × length", "relpos", f"PyTorch {lines[0]['torch'].split('+')[0]}", "times"],
               [[f"{short(x['oracle'])}, {x['batch']} × {x['length']:,}", times(x["relpos_ms"]), times(x["torch_ms"]),
                 f"{x['torch_ms'][0] / x['relpos_ms'][0]:.2f} ×"] for x in lines])
    for x in lines:
        plain = [y for y in lines if y["oracle"] == "none" and y["length"] == x["length"]]
        if x["oracle"] != "none" and plain:
            page.text(f"At {x['batch']} × {x['length']:,}, relpos with {short(x['oracle'])} is "
                      f"{plain[0]['torch_ms'][0] / x['relpos_ms'][0]:.2f} × as fast as PyTorch without any position.")


def to_the_end(page, lines):
    page.text("The same model trained to the end by both programs, from the same initial weights and on the same "
              "windows: the mean loss of the last tenth of the steps, as means over the "
              "starts. After a few hundred steps, rounding makes two trainings as different as two starts, so the "
              "means must agree within the spread of PyTorch's starts.")
    page.table(["position", "steps, batch × length", "starts", "relpos", f"PyTorch {lines[0]['version'].split('+')[0]}",
                "apart", "spread of PyTorch's starts"],
               [[short(x["whole"]), f"{x['steps']:,}, {x['batch']} × {x['length']:,}", len(x["relpos"]),
                 f"{statistics.mean(x['relpos']):.4f}", f"{statistics.mean(x['torch']):.4f}",
                 f"{statistics.mean(x['relpos']) - statistics.mean(x['torch']):+.4f}",
                 f"{max(x['torch']) - min(x['torch']):.4f}"] for x in lines])
