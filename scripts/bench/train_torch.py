#!/usr/bin/env python3
"""The peer of scripts/bench/train: trains a GPT-2, Llama or Qwen2 model of random weights on random tokens with PyTorch 2.

The work is dtrain's: causal language-model loss, backward, the gradient's global norm clipped to 1, AdamW with f32 masters.
Written as a PyTorch user who wants speed would: scaled_dot_product_attention, fused AdamW, autocast for bf16, torch.compile
over model and loss, DDP over gloo with gradients as bucket views. RoPE scaling is left out: it changes values, not work. Prints one JSON line.
"""
import argparse
import json
import math
import resource
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Config:
    """The few numbers of a Hugging Face config.json that the model needs."""

    def __init__(self, path):
        with open(path) as f:
            c = json.load(f)
        self.kind = c["model_type"]
        if self.kind not in ("gpt2", "llama", "qwen2"):
            sys.exit(f"{path}: model_type {self.kind!r}; expected gpt2, llama or qwen2")
        gpt2 = self.kind == "gpt2"
        self.vocab = c["vocab_size"]
        self.width = c["n_embd" if gpt2 else "hidden_size"]
        self.layers = c["n_layer" if gpt2 else "num_hidden_layers"]
        self.heads = c["n_head" if gpt2 else "num_attention_heads"]
        self.kv_heads = self.heads if gpt2 else c.get("num_key_value_heads", self.heads)
        self.head_dim = c.get("head_dim") or self.width // self.heads
        self.ffn = (c.get("n_inner") or 4 * self.width) if gpt2 else c["intermediate_size"]
        self.eps = c["layer_norm_epsilon" if gpt2 else "rms_norm_eps"]
        self.positions = c["n_positions" if gpt2 else "max_position_embeddings"]
        self.tied = c.get("tie_word_embeddings", gpt2)
        self.qkv_bias = gpt2 or self.kind == "qwen2" or c.get("attention_bias", False)
        self.theta = c.get("rope_theta", 10000.0)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.sizes = [c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim]
        self.head_dim, self.grouped = c.head_dim, c.kv_heads != c.heads
        self.qkv = nn.Linear(c.width, sum(self.sizes), bias=c.qkv_bias)
        self.out = nn.Linear(c.heads * c.head_dim, c.width, bias=c.kind == "gpt2")

    def forward(self, x, rope):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, -1, self.head_dim).transpose(1, 2) for y in self.qkv(x).split(self.sizes, dim=2))
        if rope is not None:
            q, k = rotate(q, rope), rotate(k, rope)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.grouped)
        return self.out(y.transpose(1, 2).reshape(b, t, -1))


def rotate(x, rope):
    """RoPE on halves, as Hugging Face's Llama has it. x: (B, H, T, D); rope: cos and sin (T, D)."""
    cos, sin = (r.to(x.dtype) for r in rope)
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Gpt2Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.up, self.down = nn.Linear(c.width, c.ffn), nn.Linear(c.ffn, c.width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class GatedMlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_up = nn.Linear(c.width, 2 * c.ffn, bias=False)
        self.down = nn.Linear(c.ffn, c.width, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        norm = nn.LayerNorm if c.kind == "gpt2" else nn.RMSNorm
        self.norm1, self.norm2 = norm(c.width, eps=c.eps), norm(c.width, eps=c.eps)
        self.attention = Attention(c)
        self.mlp = Gpt2Mlp(c) if c.kind == "gpt2" else GatedMlp(c)

    def forward(self, x, rope):
        x = x + self.attention(self.norm1(x), rope)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    """forward(ids, targets) is the mean loss. ids, targets: (B, T)."""

    def __init__(self, c, seq_len):
        super().__init__()
        gpt2 = c.kind == "gpt2"
        self.tokens = nn.Embedding(c.vocab, c.width)
        self.positions = nn.Embedding(c.positions, c.width) if gpt2 else None
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.width, eps=c.eps) if gpt2 else nn.RMSNorm(c.width, eps=c.eps)
        self.head = nn.Linear(c.width, c.vocab, bias=False)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)
        if c.tied:
            self.head.weight = self.tokens.weight
        if not gpt2:
            frequency = c.theta ** (-torch.arange(0, c.head_dim, 2) / c.head_dim)
            angle = torch.outer(torch.arange(seq_len), frequency).repeat(1, 2)
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids, targets):
        x = self.tokens(ids)
        rope = None
        if self.positions is not None:
            x = x + self.positions.weight[: ids.shape[1]]
        else:
            rope = (self.cos, self.sin)
        for block in self.blocks:
            x = block(x, rope)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def flops_per_token(c, seq_len):
    """Forward + backward, a multiply-add being 2: {full, causal} attention. dtrain's convention (training_flops_per_token)."""
    qkv = (c.heads + 2 * c.kv_heads) * c.head_dim
    up = c.ffn if c.kind == "gpt2" else 2 * c.ffn
    linear = 2 * c.width * (c.layers * (qkv + c.heads * c.head_dim + up + c.ffn) + c.vocab)
    attention = 4 * seq_len * c.heads * c.head_dim * c.layers
    return {"full": 3 * (linear + attention), "causal": 3 * (linear + attention / 2)}


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, help="a Hugging Face config.json")
    p.add_argument("--precision", choices=("f32", "bf16", "bf16-weights"), default="f32",
                   help="bf16: autocast with f32 masters; bf16-weights: weights and optimizer state in bf16 too (less exact than dtrain)")
    p.add_argument("--seq-len", type=int, required=True)
    p.add_argument("--micro-batch", type=int, required=True, help="sequences per rank")
    p.add_argument("--steps", type=int, default=6, help="measured steps")
    p.add_argument("--warmup", type=int, default=2, help="steps before them")
    p.add_argument("--threads", type=int, required=True, help="per rank")
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--port", type=int, default=29531, help="on the loopback interface, for more than one rank")
    return p.parse_args()


def train(rank, args):
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    config = Config(args.model)
    model = Model(config, args.seq_len)
    if args.precision == "bf16-weights":
        model = model.bfloat16()
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-4,
                                  betas=(0.9, 0.95), eps=1e-8, fused=True)
    step_model = model
    if args.ranks > 1:
        import torch.distributed as dist
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=args.ranks)
        step_model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if args.compile:
        step_model = torch.compile(step_model, dynamic=False)
    generator = torch.Generator().manual_seed(1 + rank)

    seconds, cpu_seconds, losses = [], [], []
    for _ in range(args.warmup + args.steps):
        ids = torch.randint(config.vocab, (args.micro_batch, args.seq_len + 1), generator=generator)
        start, cpu_start = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
            loss = step_model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=args.ranks == 1)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    if args.ranks > 1:
        slowest = torch.tensor(seconds)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        seconds = slowest.tolist()
        dist.destroy_process_group()
    if rank != 0:
        return
    measured = seconds[args.warmup:]
    cpu_share = sum(cpu_seconds[args.warmup:]) / (sum(measured) * args.threads)  # well below 1: other programs took the cores
    tokens = args.ranks * args.micro_batch * args.seq_len
    tokens_per_s = tokens / statistics.median(measured)
    flops = flops_per_token(config, args.seq_len)
    print(json.dumps({
        "torch": torch.__version__, "precision": args.precision, "compiled": args.compile, "ranks": args.ranks, "threads": args.threads,
        "seq_len": args.seq_len, "micro_batch": args.micro_batch, "tokens_per_s": tokens_per_s,
        "gflop_per_s": {k: v * tokens_per_s * 1e-9 for k, v in flops.items()}, "flops_per_token": flops,
        "step_s": [round(s, 4) for s in measured], "warmup_s": [round(s, 3) for s in seconds[:args.warmup]],
        "cpu_share": round(cpu_share, 3),
        "loss_first": losses[0], "loss_last": losses[-1], "loss_expected_first": math.log(config.vocab),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "params": sum(p.numel() for p in model.parameters())}), flush=True)


def main():
    args = parse_args()
    if args.ranks == 1:
        train(0, args)
        return
    import torch.multiprocessing as mp
    mp.spawn(train, args=(args,), nprocs=args.ranks)


if __name__ == "__main__":
    main()
