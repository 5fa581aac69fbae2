#!/usr/bin/env python3
"""Makes the golden models: small random-weight models of each family, with what transformers computes from them.

Needs: torch, transformers, safetensors, numpy. Run it from anywhere: it writes NAME/ beside itself. What was used is in
golden.json ("made_with"). Attention is eager, dropout is 0, everything runs on one CPU thread.

NAME/config.json, NAME/model.safetensors   as transformers' save_pretrained writes them (f32)
NAME/golden.safetensors
  ids, targets        i32 (STEPS, B, T): step s trains on row s; a target of -1 is ignored; targets are not to be shifted
  logits, logits_f64  f32, f64 (B, T, V) of the initial weights on ids[0]
  grad.P, grad_f64.P  f32, f64, in the orientation of the file's tensor P (its name as in model.safetensors): gradient of
                      the loss of step 0, for every parameter, a tied one once (the sum of both uses), before clipping
NAME/golden.json
  loss, loss_f64      mean over the valid targets of step 0 of -log softmax(logits)[target], initial weights
  grad_norm, grad_norm_f64   2-norm over all parameters, tied once
  adamw               what the training runs use: lr (constant), beta1, beta2, weight_decay, clip_norm
  train               one entry per eps (1e-8, 1e-4), each with, in f32 and f64:
                      losses (STEPS), loss of step s before its update; grad_norms (STEPS), before clipping;
                      final_loss, of step 0's batch after the last update
  bf16                the same step 0 and eps 1e-4 run in torch.autocast(bfloat16) with f32 master weights: what bf16 costs
                      the peer; logit_error and grad_error are max |bf16 - f64| / max |f64| (of the logits; per parameter)

One AdamW step (torch.optim.AdamW after torch.nn.utils.clip_grad_norm_), t = 1, 2, ...:
  norm = 2-norm of all gradients;  g *= min(1, clip_norm / (norm + 1e-6))
  p *= 1 - lr * weight_decay             for matrices and embeddings (2-D); norms and biases (1-D) do not decay
  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
  p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)

The f64 figures come from the same transformers code with every f32 it asks for (norms, softmax, rotary tables) replaced by
f64; the script checks that by finite differences of the loss, which f32 anywhere would spoil.
"""
import contextlib
import copy
import json
import os
import pathlib

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config

STEPS, B, T = 10, 2, 17
ADAMW = dict(lr=3e-3, beta1=0.9, beta2=0.95, weight_decay=0.1, clip_norm=1.0)
IGNORED = -1

# Odd sizes throughout: no width is a multiple of a vector register.
CONFIGS = {
    "gpt2": GPT2Config(vocab_size=67, n_embd=24, n_layer=3, n_head=3, n_inner=53, n_positions=19, resid_pdrop=0.0,
                       embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=66),
    # Untied; rotary scaling whose three ranges (kept, blended, divided) all hold some frequency; H * D is not C.
    "llama": LlamaConfig(vocab_size=97, hidden_size=28, intermediate_size=45, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=10, max_position_embeddings=64, rms_norm_eps=1e-5,
                         rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0,
                                              high_freq_factor=4.0, original_max_position_embeddings=32),
                         bos_token_id=1, eos_token_id=2),
    # Every bias a llama can have, as many key/value heads as heads, linear rotary scaling.
    "llama_bias": LlamaConfig(vocab_size=71, hidden_size=36, intermediate_size=37, num_hidden_layers=2,
                              num_attention_heads=3, num_key_value_heads=3, max_position_embeddings=32, rms_norm_eps=1e-6,
                              attention_bias=True, mlp_bias=True, bos_token_id=None, eos_token_id=[5, 6],
                              rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5)),
    # Tied, one key/value head for all four.
    "qwen2": Qwen2Config(vocab_size=131, hidden_size=32, intermediate_size=51, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=True,
                         rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
}


@contextlib.contextmanager
def everything_f64():
    """While it lasts, code that asks torch for float32 gets float64."""
    kept = torch.float32, torch.float, torch.Tensor.float
    real = torch.float64
    torch.float32, torch.float, torch.Tensor.float = real, real, torch.Tensor.double
    torch.set_default_dtype(real)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept
        torch.set_default_dtype(kept[0])


def make_model(config, seed):
    """Random weights large enough that every part of the model matters, norms and biases included."""
    model = AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation="eager")
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32))
            if p.ndim == 2:
                p.copy_(0.25 * noise)
            elif name.endswith("bias"):
                p.copy_(0.1 * noise)
            else:
                p.copy_(1.0 + 0.2 * noise)
    return model.eval()


def in_f64(config, model):
    """Made anew inside everything_f64, so that its rotary tables are f64 too."""
    twin = AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation="eager").double()
    twin.load_state_dict(model.state_dict())
    return twin.eval()


def make_batches(vocab, seed):
    """Streams in which a token depends on the one before, some targets ignored: whole heads, tails and single ones."""
    rng = np.random.default_rng(seed)
    follow = rng.permutation(vocab)
    stream = np.empty((STEPS, B, T + 1), np.int64)
    stream[..., 0] = rng.integers(vocab, size=(STEPS, B))
    for t in range(T):
        stream[..., t + 1] = np.where(rng.random((STEPS, B)) < 0.7, follow[stream[..., t]],
                                      rng.integers(vocab, size=(STEPS, B)))
    ids, targets = stream[..., :-1].copy(), stream[..., 1:].copy()
    targets[rng.random(targets.shape) < 0.15] = IGNORED
    targets[:, 0, :3] = IGNORED
    targets[:, 1, -2:] = IGNORED
    assert ((targets == IGNORED).sum((1, 2)) < B * T // 2).all()
    return torch.from_numpy(ids), torch.from_numpy(targets)


def loss_of(model, ids, targets):
    logits = model(input_ids=ids, use_cache=False).logits
    wide = logits if logits.dtype == torch.float64 else logits.to(torch.float32)
    loss = torch.nn.functional.cross_entropy(wide.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    return loss, logits


def gradients(model, ids, targets):
    model.zero_grad(set_to_none=True)
    loss, logits = loss_of(model, ids, targets)
    loss.backward()
    grads = {name: p.grad.detach().clone() for name, p in model.named_parameters()}
    assert all(g.abs().max() > 0 for g in grads.values())
    norm = sum(float(g.double().square().sum()) for g in grads.values()) ** 0.5
    return loss.item(), logits.detach(), grads, norm


def check_f64(model, ids, targets, grads):
    """The directional derivative by a five-point difference; an f32 rounding inside would leave about 1e-3."""
    generator = torch.Generator().manual_seed(5)
    direction = {n: torch.randn(g.shape, generator=generator, dtype=torch.float64) for n, g in grads.items()}
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    h = 2e-5

    def at(x):
        with torch.no_grad():
            for n, p in model.named_parameters():
                p.copy_(start[n] + x * direction[n])
            return loss_of(model, ids, targets)[0].item()

    slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
    at(0.0)
    exact = sum(float((grads[n] * direction[n]).sum()) for n in grads)
    assert abs(slope - exact) < 1e-8 * abs(exact), (slope, exact)


def train(model, ids, targets, eps, autocast=False):
    model = copy.deepcopy(model)
    groups = [dict(params=[p for p in model.parameters() if p.ndim == 2], weight_decay=ADAMW["weight_decay"]),
              dict(params=[p for p in model.parameters() if p.ndim == 1], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=eps, foreach=False)
    losses, norms = [], []
    run = torch.autocast("cpu", dtype=torch.bfloat16) if autocast else contextlib.nullcontext()
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        with run:
            loss, _ = loss_of(model, ids[step], targets[step])
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), ADAMW["clip_norm"]).item())
        optimizer.step()
    with torch.no_grad(), run:
        final = loss_of(model, ids[0], targets[0])[0].item()
    assert max(norms) > ADAMW["clip_norm"], "clipping must be exercised"
    assert final < losses[0]
    return dict(losses=losses, grad_norms=norms, final_loss=final)


def bf16_errors(model, ids, targets, logits_f64, grads_f64):
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, logits = loss_of(model, ids[0], targets[0])
    loss.backward()
    relative = lambda a, b: float((a.double() - b).abs().max() / b.abs().max())
    errors = {n: relative(p.grad, grads_f64[n]) for n, p in model.named_parameters()}
    return dict(loss=loss.item(), logit_error=relative(logits.detach(), logits_f64), grad_error=errors,
                train=train(model, ids, targets, 1e-4, autocast=True))


def make(name, config, seed, folder):
    torch.manual_seed(seed)
    model = make_model(config, seed)
    ids, targets = make_batches(config.vocab_size, seed + 1)
    folder.mkdir(exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)

    loss, logits, grads, norm = gradients(model, ids[0], targets[0])
    runs = {f"{eps:g}": dict(f32=train(model, ids, targets, eps)) for eps in (1e-8, 1e-4)}
    with everything_f64():
        wide = in_f64(config, model)
        loss64, logits64, grads64, norm64 = gradients(wide, ids[0], targets[0])
        check_f64(wide, ids[0], targets[0], grads64)
        for eps in (1e-8, 1e-4):
            runs[f"{eps:g}"]["f64"] = train(wide, ids, targets, eps)
    assert logits64.dtype == torch.float64 and abs(loss - loss64) < 1e-5 * loss64

    tensors = dict(ids=ids.to(torch.int32), targets=targets.to(torch.int32), logits=logits, logits_f64=logits64)
    tensors |= {f"grad.{n}": g for n, g in grads.items()} | {f"grad_f64.{n}": g for n, g in grads64.items()}
    save_file({n: t.contiguous() for n, t in tensors.items()}, folder / "golden.safetensors")
    golden = dict(made_with=dict(torch=torch.__version__, transformers=transformers.__version__),
                  n_params=sum(p.numel() for p in model.parameters()), batch=dict(steps=STEPS, b=B, t=T, ignored=IGNORED),
                  loss=loss, loss_f64=loss64, grad_norm=norm, grad_norm_f64=norm64, adamw=ADAMW, train=runs,
                  bf16=bf16_errors(model, ids, targets, logits64, grads64))
    for file in folder.glob("*.safetensors"):
        file.chmod(0o644)
    (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    worst = max(float((grads[n] - grads64[n]).abs().max() / grads64[n].abs().max()) for n in grads)
    print(f"{name}: {golden['n_params']} parameters, loss {loss:.6f}, f32 - f64 {loss - loss64:.1e}, norm {norm:.3f}, "
          f"worst f32 gradient {worst:.1e}, bf16 logits {golden['bf16']['logit_error']:.1e}")


def main():
    torch.set_num_threads(1)
    here = pathlib.Path(__file__).resolve().parent
    for i, (name, config) in enumerate(CONFIGS.items()):
        make(name, config, 100 * (i + 1), here / name)


if __name__ == "__main__":
    main()
