"""Numbers that tutorials print for the experiments of lab/, of other models and texts, without a way to repeat them.
SPDX-License-Identifier: Apache-2.0"""
CLAIMS = {
    "length": ("T5-like bias 18.0, 19.8, 24.1, 32.5 and ALiBi 18.2, 19.1, 20.8, 22.1 at 1, 2, 4 and 8 times the trained length",
               {"t5": (1.0, 19.8 / 18.0, 24.1 / 18.0, 32.5 / 18.0), "alibi": (1.0, 19.1 / 18.2, 20.8 / 18.2, 22.1 / 18.2)}),
    "buckets": ("8 to 128 buckets: 18.5, 18.3, 18.2, 18.1, 18.1 as trained, and 21.2, 20.1, 19.8, 19.7, 19.6 at twice the length",
                {"t5,buckets=8": (1.0, 21.2 / 18.5), "t5,buckets=16": (1.0, 20.1 / 18.3), "t5": (1.0, 19.8 / 18.2),
                 "t5,buckets=64": (1.0, 19.7 / 18.1), "t5,buckets=128": (1.0, 19.6 / 18.1)}),
    "strategies": ("uniform 18.5, logarithmic 18.0, linear 18.2, quadratic 18.3 as trained, and 21.5, 19.8, 20.3, 20.8 at twice the length",
                   {"t5": (1.0, 19.8 / 18.0), "bucket,strategy=uniform": (1.0, 21.5 / 18.5), "bucket,strategy=linear": (1.0, 20.3 / 18.2),
                    "bucket,strategy=quadratic": (1.0, 20.8 / 18.3)}),
    "overhead": ("of attention alone, forward, at 512: learned 0.65 %, sinusoidal 0.81 %, relative bias 1.79 % (elsewhere: less than 5 %), RoPE 2.60 %; "
                 "of training, Shaw 5 to 10 %",
                 {"learned": "0.65", "sinusoidal": "0.81", "t5": "1.79", "rope": "2.60", "relkey,left=64+relval,left=64": "5 to 10"}),
}
