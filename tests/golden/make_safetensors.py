#!/usr/bin/env python3
"""Makes tests/golden/safetensors: files as the Python package writes them, and their values as text the test can read.

Needs numpy, torch and safetensors. Run from anywhere; writes beside itself.
"""
import json
import pathlib

import torch
from safetensors.torch import save_file

here = pathlib.Path(__file__).parent / "safetensors"
here.mkdir(exist_ok=True)
torch.manual_seed(20260131)

tensors = {
    "f32": torch.randn(7, 5),
    "f16": torch.randn(3, 11).to(torch.float16),
    "bf16": torch.randn(13).to(torch.bfloat16),
    "f64": torch.randn(2, 3, 4, dtype=torch.float64),
    "i64": torch.arange(-3, 4),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 9),
    "mask": torch.tensor([True, False, True]),
    "small": torch.tensor([6e-8, -6.1e-5, 65504.0, float("inf"), -0.0]).to(torch.float16),
}
save_file(tensors, here / "mixed.safetensors", metadata={"format": "pt", "note": "h\u00e9llo"})

values = {name: {"shape": list(t.shape), "values": [repr(float(x)) for x in t.to(torch.float32).flatten()]}
          for name, t in sorted(tensors.items())}
(here / "mixed.json").write_text(json.dumps(values, indent=1) + "\n")

sharded = here / "sharded"
sharded.mkdir(exist_ok=True)
parts = [{"a.weight": tensors["f32"], "b.bias": tensors["bf16"]}, {"c.weight": tensors["f16"]}]
weight_map = {}
for i, part in enumerate(parts, 1):
    file = f"model-{i:05}-of-00002.safetensors"
    save_file(part, sharded / file, metadata={"format": "pt"})
    weight_map |= {name: file for name in part}
index = {"metadata": {"total_size": 7 * 5 * 4 + 13 * 2 + 33 * 2}, "weight_map": weight_map}
(sharded / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
