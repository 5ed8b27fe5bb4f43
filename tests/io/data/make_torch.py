#!/usr/bin/env python3
"""Write torch.pt, torch_nested.pt and torch_old.pt in this folder with PyTorch. tests/io/test_torch.c checks their
content:

x[i] = i in the shape (2, 3, 4) in every type, and tensors that share storages.
SPDX-License-Identifier: Apache-2.0
"""
import collections
import os

import torch

here = os.path.dirname(os.path.abspath(__file__))
x = torch.arange(24.0).reshape(2, 3, 4)
types = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "bool": torch.bool,
         "u8": torch.uint8,
         "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u16": torch.uint16,
         "u32": torch.uint32,
         "u64": torch.uint64, "f8": torch.float8_e4m3fn}
tensors = collections.OrderedDict((name, x.to(dtype)) for name, dtype in types.items())
tensors |= {"view": tensors["f32"][1, 1:], "tied": tensors["f32"], "parameter": torch.nn.Parameter(x[0]),
            "scalar": x[1, 2, 3].clone(),
            "empty": torch.zeros(3, 0, 2), "transposed": torch.arange(6.0).reshape(2, 3).t(),
            "ones": x.reshape(1, 24, 1).transpose(0, 2),
            "naïve": x[0, 0], "epoch": 3, "words": ["a", None, 2.5, True, (1, 2)]}
tensors._metadata = collections.OrderedDict({"": {"version": 1}})
torch.save(tensors, os.path.join(here, "torch.pt"))
torch.save({"epoch": 7, "state_dict": {"weight": x, "bias": x[0]}, "optimizer": {"state": {0: {"step": x}}, "lr": 0.1}},
           os.path.join(here, "torch_nested.pt"), pickle_protocol=5)
torch.save({"weight": x[0, 0]}, os.path.join(here, "torch_old.pt"), _use_new_zipfile_serialization=False)
