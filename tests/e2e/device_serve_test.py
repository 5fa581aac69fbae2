#!/usr/bin/env -S python3 -B
"""dserve --device cuda in the build of the simulator: transformers' tokens over HTTP, alone, together, on two ranks and
with what makes weights and caches smaller. Device memory is guarded: a host that touches it ends the server."""

import array
import json
import os
import random
import shutil
import signal
import struct
import time

from serve_lib import SOURCE, Server, all_at_once, checks, main, scratch_folder

os.environ["RANKWRIGHT_SIMT_GUARD"] = "1"
GOLDEN = os.path.join(SOURCE, "tests", "golden", "models", "llama")
with open(os.path.join(GOLDEN, "generate.json"), encoding="utf-8") as f:
    CASES = json.load(f)["cases"]
equal, ok = checks.equal, checks.ok


def give_tokens(model):
    """A token for each printable character."""
    tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
                 "decoder": {"type": "ByteLevel"},
                 "model": {"type": "BPE", "vocab": {chr(c): c - 33 for c in range(33, 127)}, "merges": []}}
    with open(os.path.join(model, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(tokenizer, f)


def golden_model(folder):
    model = os.path.join(folder, "llama")
    os.mkdir(model)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(os.path.join(GOLDEN, name), model)
    give_tokens(model)
    return model


def random_model(folder, longest=64):
    """One whose heads and widths two ranks can share, as the golden one's cannot."""
    model = os.path.join(folder, f"random-{longest}")
    os.mkdir(model)
    v, c, heads, kv_heads, d, ffn, layers = 97, 24, 4, 2, 6, 38, 2
    with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": v, "hidden_size": c,
                   "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": d, "intermediate_size": ffn,
                   "num_hidden_layers": layers, "max_position_embeddings": longest, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
                   "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "float32"}, f)
    shapes = {"model.embed_tokens.weight": (v, c), "model.norm.weight": (c,), "lm_head.weight": (v, c)}
    for i in range(layers):
        at = f"model.layers.{i}."
        shapes |= {at + "input_layernorm.weight": (c,), at + "post_attention_layernorm.weight": (c,),
                   at + "self_attn.q_proj.weight": (heads * d, c), at + "self_attn.k_proj.weight": (kv_heads * d, c),
                   at + "self_attn.v_proj.weight": (kv_heads * d, c), at + "self_attn.o_proj.weight": (c, heads * d),
                   at + "mlp.gate_proj.weight": (ffn, c), at + "mlp.up_proj.weight": (ffn, c), at + "mlp.down_proj.weight": (c, ffn)}
    rng, header, data = random.Random(7), {}, b""
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array.array("f", (rng.gauss(0, 0.3) if len(shape) > 1 else 1.0 for _ in range(n))).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    with open(os.path.join(model, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    give_tokens(model)
    return model


def answer(server, case, **fields):
    choice = server.completion(case["prompt"], **{"max_tokens": len(case["ids"]), "temperature": 0, "ignore_eos": True,
                                                  "return_token_ids": True, **fields})["choices"][0]
    return choice["token_ids"], choice["logprobs"]


def ids(server, **fields):
    return [a[0] for a in all_at_once([lambda c=c: answer(server, c, **fields) for c in CASES], 120)]


def serve(*flags):
    return Server(model, "--device", "cuda", "--threads", 1, "--max-num-seqs", 4, "--max-batch-tokens", 16, *flags)


def goldens():
    expected = [c["ids"] for c in CASES]
    with serve("--precision", "f32") as s:
        equal("transformers' tokens, together", ids(s), expected)
        for i, c in enumerate(CASES):
            found, logprobs = answer(s, c, logprobs=1, cache_prompt=False)
            equal(f"case {i} alone", found, c["ids"])
            worst = max(abs(x - y) for x, y in zip(logprobs["token_logprobs"], c["logprobs"][-len(found):]))
            ok(f"case {i}: its log-probabilities within eight times the reference's own error", worst <= 8 * c["f32_error"], worst)
        checks.holds("the device in the metrics", s.get("/metrics").text, 'device="cuda:0')
        checks.holds("and in the log", s.log(), "device: cuda:0")


def two_ranks():
    shared = random_model(folder)
    flags = ("--threads", 1, "--precision", "f32", "--max-num-seqs", 4, "--max-batch-tokens", 16)
    fields = dict(temperature=0, max_tokens=6, ignore_eos=True, return_token_ids=True, logprobs=0)
    found = {}
    for name, more, ranks in (("cpu", (), 0), ("one", ("--device", "cuda"), 0), ("two", ("--device", "cuda", "--tp", 2), 2)):
        with Server(shared, *flags, *more, ranks=ranks) as s:
            replies = all_at_once([lambda p=p: s.completion(p, **fields) for p in ([3, 4, 5], [60], [9, 8, 7, 6, 5])], 120)
            found[name] = [r["choices"][0]["token_ids"] for r in replies]
    equal("one rank has the CPU's tokens", found["one"], found["cpu"])
    equal("two ranks have them too", found["two"], found["cpu"])


def hung_rank():
    """In the middle of decoding, which replays recorded steps."""
    with Server(random_model(folder, 2000), "--device", "cuda", "--threads", 1, "--precision", "f32", "--tp", 2, "--comm-timeout", 3,
                "--drain-timeout", 3, ranks=2) as s:
        stream = s.stream("/v1/completions", {"prompt": [3, 4, 5], "max_tokens": 1900, "temperature": 0, "ignore_eos": True})
        events = iter(stream)
        for _ in range(20):
            next(events)
        os.kill(s.rank_pids()[1], signal.SIGSTOP)
        begin = time.monotonic()
        ok("the job ends, not with 0", s.exit_code(40) != 0)
        ok("soon after the time-out", time.monotonic() - begin < 25, time.monotonic() - begin)
        checks.holds("and what it prints names the rank", s.log(), "rank 1")


def smaller():
    for flags in ([], ["--quantize", "int8", "--quantize-group", 64, "--kv-dtype", "int8"], ["--quantize", "int4"]):
        with serve("--deterministic", *flags) as s:
            fields = dict(seed=3, temperature=0.8, top_p=0.9, max_tokens=6, cache_prompt=False)
            alone = [answer(s, c, **fields)[0] for c in CASES]
            equal(f"{flags or 'bf16'}: together as alone", ids(s, **fields), alone)
            ok("and not all the same", len({str(a) for a in alone}) > 2, alone)


with scratch_folder() as folder:
    model = golden_model(folder)
    main(goldens, two_ranks, hung_rank, smaller)
