#!/usr/bin/env python3
"""Greedy continuations of transformers' `generate` for the golden models of this folder, with the log-probabilities of every
token (of the model's own distribution) in f64 and how far f32 is from them. Run with torch and transformers; writes
NAME/generate.json beside each model."""
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM

here = pathlib.Path(__file__).parent
for name in ("gpt2", "llama", "llama_bias", "qwen2"):
    config = json.loads((here / name / "config.json").read_text())
    vocab, longest = config["vocab_size"], config.get("max_position_embeddings", config.get("n_positions"))
    models = {t: AutoModelForCausalLM.from_pretrained(here / name, dtype=t).eval() for t in (torch.float64, torch.float32)}
    cases = []
    generator = torch.Generator().manual_seed(7)
    for n in (1, 2, 5, 13, 17):
        prompt = torch.randint(3, vocab, (1, n), generator=generator)
        new = min(20, longest - n)
        out = {}
        for t, model in models.items():
            ids = model.generate(prompt, max_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0)
            with torch.no_grad():
                logits = model(ids).logits[0].to(torch.float64)
            out[t] = (ids[0].tolist(), torch.log_softmax(logits, -1))
        ids, logprobs = out[torch.float64]
        assert ids == out[torch.float32][0], f"{name}: f32 and f64 part ways; choose other prompts"
        chosen = [logprobs[i, ids[i + 1]].item() for i in range(len(ids) - 1)]
        error = (logprobs - out[torch.float32][1]).abs().max().item()
        top = torch.topk(logprobs, 4, -1)
        cases.append({"prompt": ids[:n], "ids": ids[n:], "logprobs": [round(x, 9) for x in chosen], "f32_error": error,
                      "top_ids": top.indices[:-1].tolist(), "top_logprobs": [[round(x, 9) for x in row] for row in top.values[:-1].tolist()]})
    (here / name / "generate.json").write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")
    print(name, [c["f32_error"] for c in cases])
