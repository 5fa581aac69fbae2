"""Training runs with a fault planted in each."""

import array
import json
import math
import os
import signal
import struct
import subprocess
import time

from doctor_corpus_hosts import Hosts, used
from doctor_corpus_lib import CORES, Case, NotPlanted, Skipped, lines

COMM, RESOURCES, DATA, PARAMETERS = "comm", "resource", "data", "param"


# ---- data --------------------------------------------------------------------------------------------------------------

def looping_passage(ctx):
    """The corpus is one passage again and again: every batch is the same few samples."""
    passage, begin = 128 * ctx.rng.randint(1, 4), ctx.rng.randrange(100_000)
    ctx.note(f"{passage} bytes again and again")
    text = ctx.shared.text[begin:begin + passage]
    return ctx.train(data=ctx.shared.tokens(ctx.case.name, text * (400_000 // passage)), steps=ctx.rng.randint(60, 90))


def few_samples(ctx):
    """The corpus is so small that the run goes through it many times."""
    samples = ctx.rng.randint(10, 40)
    ctx.note(f"{samples} samples, 16 a step")
    begin = ctx.rng.randrange(100_000)
    return ctx.train(data=ctx.shared.tokens(ctx.case.name, ctx.shared.text[begin:begin + 128 * samples + 1]), steps=ctx.rng.randint(60, 90))


def random_tokens(ctx):
    """Nothing to learn: bytes drawn evenly, for a model of just those."""
    noise = ctx.rng.randbytes(400_000)
    ctx.note("bytes drawn evenly")
    return ctx.train(model=ctx.shared.model("bytes_only", vocab_size=257), data=ctx.shared.tokens(ctx.case.name, noise), steps=ctx.rng.randint(70, 100))


def slow_data_disk(ctx):
    """Samples lie on a disk that takes long for each."""
    wait = ctx.between(0.008, 0.03)
    ctx.note(f"{wait * 1e3:.0f} ms for each page of the corpus")
    path, fast = ctx.slow_disk(ctx.shared.data, wait)
    run = ctx.train(data=path, steps=40)
    fast()  # the doctor looks into the file too
    return run


# ---- ranks, hosts, links -----------------------------------------------------------------------------------------------

def slow_rank(ctx):
    """One rank is held for a while, again and again."""
    ctx.rank, hold, run = ctx.rng.randrange(2), ctx.between(0.06, 0.2), ctx.between(0.03, 0.08)
    ctx.note(f"rank {ctx.rank} held {hold / (hold + run):.0%} of the time")
    job = ctx.start(ranks=2, steps=60)
    job.at_step(2)
    pid = job.rank_pids()[ctx.rank]
    try:
        while job.process.poll() is None:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(hold)
            os.kill(pid, signal.SIGCONT)
            time.sleep(run)
    except ProcessLookupError:
        pass
    job.wait()
    return job.out


def crowded_core(ctx):
    """One rank shares its core with other work, the other has one of its own."""
    if CORES < 2:
        raise Skipped("needs two cores")
    rank, hogs = ctx.rng.randrange(2), ctx.rng.randint(1, 3)
    cores = sorted(os.sched_getaffinity(0))[:2]
    ctx.note(f"{hogs} busy loops on the core of rank {rank}")
    job = ctx.start(ranks=2, steps=60)
    job.at_step(1)
    for r, pid in job.rank_pids().items():
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), {cores[r]})
    ctx.hog(hogs, cores[rank])
    job.wait()
    return job.out


def cpu_hog(ctx):
    """Other work takes turns on all cores."""
    each = ctx.rng.randint(1, 3)
    ctx.note(f"{each} busy loops a core")
    ctx.hog(each * CORES)
    return ctx.train(ranks=2, steps=50)


def too_many_threads(ctx):
    """Each rank computes with many more threads than it has cores."""
    threads = CORES * ctx.rng.randint(2, 3)
    ctx.note(f"2 ranks x {threads} threads on {CORES} cores")
    return ctx.train(ranks=2, threads=threads, steps=20)


def slow_link(ctx):
    rate = ctx.between(20, 60)
    ctx.note(f"{rate:.0f} Mbit/s between two hosts")
    return used(ctx.train(launcher=Hosts(ctx, rate_mbit=rate).launcher(), lr_schedule="constant", steps=int(9 + rate / 5)), ctx)


def lossy_link(ctx):
    loss = ctx.between(0.02, 0.06)
    ctx.note(f"{loss:.1%} of the packets lost")
    return used(ctx.train(launcher=Hosts(ctx, loss=loss).launcher(), lr_schedule="constant", steps=12), ctx)


def far_link(ctx):
    """Tensor-parallel ranks on two hosts with a delay between them."""
    delay = ctx.between(0.004, 0.02)
    ctx.note(f"tp 2 across {delay * 1e3:.0f} ms each way")
    return used(ctx.train(launcher=Hosts(ctx, delay_s=delay).launcher(), tp=2, lr_schedule="constant", steps=12), ctx)


def hung_rank(ctx):
    ctx.rank, after = ctx.rng.randrange(2), ctx.rng.randint(5, 25)
    ctx.note(f"rank {ctx.rank} held for good after step {after}")
    job = ctx.start(ranks=2, steps=100000, comm_timeout=4)
    job.at_step(after)
    os.kill(job.rank_pids()[ctx.rank], signal.SIGSTOP)
    job.wait(None)
    return job.out


def killed_rank(ctx):
    ctx.rank, after = ctx.rng.randrange(2), ctx.rng.randint(5, 25)
    ctx.note(f"rank {ctx.rank} killed after step {after}")
    job = ctx.start(ranks=2, steps=100000)
    job.at_step(after)
    os.kill(job.rank_pids()[ctx.rank], signal.SIGKILL)
    job.wait(None)
    ctx.rank = None  # nobody is left to say which: that the run did not end well is enough
    return job.out


def bubble(ctx):
    micro_batches = ctx.rng.randint(1, 2)
    ctx.note(f"pp 4 with {micro_batches} micro-batches")
    return ctx.train(ranks=4, pp=4, micro_batch=8, global_batch=8 * micro_batches, steps=40)


def communication_bound(ctx):
    """Each layer is cut in four, and each piece has hardly anything to do between two sums."""
    seq = ctx.rng.choice([16, 24, 32])
    ctx.note(f"tp 4, micro-batches of {seq} tokens, hidden size 64")
    model = ctx.shared.model("narrow", hidden_size=64, intermediate_size=128, num_attention_heads=8, num_key_value_heads=4)
    run = ctx.train(ranks=4, model=model, tp=4, micro_batch=1, global_batch=16, seq_len=seq, steps=40)
    shares = sorted(line["communication"]["exposed_s"] / line["step_s"] for line in lines(os.path.join(run, "metrics.jsonl")))
    if shares[len(shares) // 2] < 0.35:
        raise NotPlanted(f"communication took {shares[len(shares) // 2]:.0%}")
    return run


# ---- numbers -----------------------------------------------------------------------------------------------------------

def healthy_weights(ctx):
    """A Hugging Face folder of a model that was trained a little."""
    def make():
        run = ctx.train(ranks=1, steps=20, out="seed")
        folder = os.path.join(ctx.shared.dir, "seed-model")
        ctx.tool("dckpt", "convert", run, "-o", folder)
        return folder
    return ctx.shared.once("weights", make)


def edited_weights(ctx, edit):
    """The same with edit(name, values) done to each tensor of 32-bit floats."""
    source, target = healthy_weights(ctx), ctx.path("model")
    os.makedirs(target)
    for name in os.listdir(source):
        if name == "rankwright.json":
            continue  # a digest of the weights as they were: without it they are anybody's
        with open(os.path.join(source, name), "rb") as f:
            content = bytearray(f.read())
        if name.endswith(".safetensors"):
            size = struct.unpack("<Q", content[:8])[0]
            for tensor, entry in json.loads(content[8:8 + size]).items():
                if tensor == "__metadata__":
                    continue
                if entry["dtype"] != "F32":
                    raise NotPlanted(f"expected weights in F32, found {entry['dtype']}")
                begin, end = (8 + size + o for o in entry["data_offsets"])
                values = array.array("f", bytes(content[begin:end]))
                edit(tensor, values)
                content[begin:end] = values.tobytes()
        with open(os.path.join(target, name), "wb") as f:
            f.write(content)
    return target


def skipped(run, least):
    """Checks that so many steps overflowed."""
    last = lines(os.path.join(run, "metrics.jsonl"))[-1:]
    if not last or last[0]["skipped_total"] < least:
        raise NotPlanted(f"expected {least} skipped steps, found {last[0]['skipped_total'] if last else 'no steps'}")
    return run


def scale_collapse(ctx):
    """A head whose gradients f16 cannot hold: the loss is finite, the scale falls and falls."""
    factor = ctx.between(2e3, 2e4)

    def edit(name, values):
        if name.startswith("lm_head"):
            for i, v in enumerate(values):
                values[i] = v * factor
    ctx.note(f"head x {factor:.0f} in f16")
    model = edited_weights(ctx, edit)
    return skipped(ctx.train("--init-from", model, precision="f16", max_skips=ctx.rng.randint(8, 30), steps=60, expect=None), 5)


def scale_collapse_later(ctx):
    """Weights grow until f16 cannot hold the activations: from then on the scale only falls."""
    lr = ctx.between(3, 12)
    ctx.note(f"f16 with lr {lr:.2g}, no clipping")
    return skipped(ctx.train(precision="f16", lr=lr, lr_schedule="constant", clip_norm=0, max_skips=ctx.rng.randint(10, 30), loss_scale=1024,
                             warmup_steps=30, steps=90, expect=None), 5)


def nan_weights(ctx):
    count, chosen = ctx.rng.randint(1, 50), ctx.rng.randint(1, 4)
    seen = []

    def edit(name, values):
        if "proj" in name:
            seen.append(name)
            if len(seen) % 28 == chosen * 7 - 3:
                for _ in range(count):
                    values[ctx.rng.randrange(len(values))] = math.nan
    model = edited_weights(ctx, edit)
    trace = ["--nan-trace"] if ctx.rng.random() < 0.5 else []
    ctx.note(f"{count} NaN in one tensor, {' '.join(trace) or 'not traced'}")
    return ctx.train("--init-from", model, *trace, max_skips=8, expect=None)


def lr_too_large(ctx):
    lr = ctx.between(0.3, 3.0)
    ctx.note(f"lr {lr:.2g}")
    return ctx.train(lr=lr, lr_schedule="constant", steps=70)


def lr_too_small(ctx):
    lr = ctx.between(1e-9, 3e-8)
    ctx.note(f"lr {lr:.1g}")
    return ctx.train(lr=lr, min_lr=0, steps=80)


def lr_jump_at_resume(ctx):
    factor = ctx.between(30, 200)
    ctx.note(f"lr x {factor:.0f} at a resume")
    constant = {"lr_schedule": "constant", "out": "run"}
    ctx.train(steps=45, **constant)
    return ctx.train("--resume", "auto", lr=1e-3 * factor, steps=90, **constant)


def batch_change_at_resume(ctx):
    factor = ctx.rng.choice([4, 8])
    ctx.note(f"global batch x {factor} at a resume, the same lr")
    constant = {"lr_schedule": "constant", "out": "run", "micro_batch": 4}
    ctx.train(steps=50, global_batch=8, **constant)
    return ctx.train("--resume", "auto", global_batch=8 * factor, steps=75, **constant)


# ---- checkpoints -------------------------------------------------------------------------------------------------------

def checkpoints_too_often(ctx):
    every = ctx.rng.randint(1, 2)
    ctx.note(f"saved every {every} steps, training waits")
    return ctx.train(checkpoint_every=every, checkpoint_mode="sync", micro_batch=2, model="kjv-llama-6m", seq_len=64, steps=20)


def slow_checkpoint_disk(ctx):
    rate = ctx.between(3, 8)
    ctx.note(f"saves at {rate:.1f} MB/s, training waits")
    return ctx.train(checkpoint_every=8, checkpoint_mode="sync", checkpoint_bandwidth=int(rate * 1e6), steps=40)


def checkpoint_disk_full(ctx):
    room = ctx.rng.randint(1, 6)
    ctx.note(f"{room} MB for checkpoints of 7.3 MB")
    return ctx.train(checkpoint_dir=ctx.small_disk(room << 20), checkpoint_every=ctx.rng.randint(10, 20), steps=50, expect=None)


def checkpoints_fail_later(ctx):
    """The disk becomes read-only after the first saves."""
    every = ctx.rng.randint(5, 8)
    disk = ctx.small_disk(64 << 20)
    job = ctx.start(checkpoint_dir=disk, checkpoint_every=every, steps=70)
    if job.at_step(3 * every):  # a mount over it, because one that is being written to cannot be made read-only
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", disk], check=True)
        ctx.mounts.append(disk)
    job.wait(None)
    if not [e for e in lines(os.path.join(job.out, "events.jsonl")) if e["event"] == "checkpoint_failed"] and job.process.returncode == 0:
        raise NotPlanted("no save failed")
    ctx.note(f"read-only after step {3 * every}, saved every {every}")
    return job.out


CASES = [
    Case("looping_passage", "train", looping_passage, DATA, r"repeat|loop|duplicat|same batch|again|epoch"),
    Case("few_samples", "train", few_samples, DATA, r"repeat|loop|duplicat|same batch|again|epoch|small"),
    Case("random_tokens", "train", random_tokens, DATA, r"label|shuffl|random|flat|noise|nothing to learn|uniform|chance"),
    Case("slow_data_disk", "train", slow_data_disk, DATA, r"data|sample|loader|wait|stall", root=True),
    Case("slow_rank", "train", slow_rank, f"{COMM}|{RESOURCES}", r"straggl|slow|late|arriv|skew|behind|held|stopp|waits? for"),
    Case("crowded_core", "train", crowded_core, f"{COMM}|{RESOURCES}", r"straggl|slow|late|arriv|skew|behind|cpu|busy|other process|contend"),
    Case("cpu_hog", "train", cpu_hog, RESOURCES, r"cpu|cores?\b|busy|other process|contend|steal|load", cpu=True),
    Case("too_many_threads", "train", too_many_threads, f"{RESOURCES}|{PARAMETERS}", r"thread|oversubscri|cores?\b|cpu|load|run queue"),
    Case("slow_link", "train", slow_link, COMM, r"communicat|link|bandwidth|network", root=True),
    Case("lossy_link", "train", lossy_link, COMM, r"communicat|link|retrans|packet|loss|network", root=True),
    Case("far_link", "train", far_link, COMM, r"communicat|link|laten|cross|network|node", root=True),
    Case("hung_rank", "train", hung_rank, COMM, r"watchdog|time.?out|timed out|arriv|hang|hung|stuck"),
    Case("killed_rank", "train", killed_rank, f"{COMM}|{RESOURCES}", r"kill|died|dead|ended|end event|crash|unfinished|abort|lost|gone|stopped"),
    Case("bubble", "train", bubble, f"{PARAMETERS}|{COMM}|{RESOURCES}", r"bubble|micro.?batch|pipeline"),
    Case("communication_bound", "train", communication_bound, f"{COMM}|{PARAMETERS}", r"communicat|all.?reduce|micro.?batch"),
    Case("scale_collapse", "train", scale_collapse, PARAMETERS, r"scale|overflow|f16"),
    Case("scale_collapse_later", "train", scale_collapse_later, PARAMETERS, r"scale|overflow|f16|learning.rate|\blr\b"),
    Case("nan_weights", "train", nan_weights, f"{DATA}|{PARAMETERS}", r"\bnan|non.?finite|\binf\b|skipp"),
    Case("lr_too_large", "train", lr_too_large, PARAMETERS, r"learning.rate|\blr\b|diverg|spike|unstable"),
    Case("lr_too_small", "train", lr_too_small, PARAMETERS, r"learning.rate|\blr\b"),
    Case("lr_jump_at_resume", "train", lr_jump_at_resume, PARAMETERS, r"learning.rate|\blr\b|resume"),
    Case("batch_change_at_resume", "train", batch_change_at_resume, PARAMETERS, r"batch"),
    Case("checkpoints_too_often", "train", checkpoints_too_often, f"{RESOURCES}|{PARAMETERS}", r"checkpoint"),
    Case("slow_checkpoint_disk", "train", slow_checkpoint_disk, f"{RESOURCES}|{PARAMETERS}", r"checkpoint|disk|storage"),
    Case("checkpoint_disk_full", "train", checkpoint_disk_full, RESOURCES, r"checkpoint|disk|space", root=True),
    Case("checkpoints_fail_later", "train", checkpoints_fail_later, RESOURCES, r"checkpoint|disk|read.?only", root=True),
]
