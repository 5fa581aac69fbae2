"""Training runs with nothing wrong, in many layouts; and those cut from one such run with a fault written into its records,
where no harmless way was found to make it happen."""

import calendar
import json
import os
import shutil
import time

from doctor_corpus_lib import QUIET, Busy, Case, NotPlanted, lines
from doctor_corpus_train import DATA, RESOURCES


def data_parallel(ctx):
    return ctx.train(ranks=2, steps=ctx.rng.randint(50, 70))


def wide(ctx):
    """A model with enough to compute for what it has to send."""
    return ctx.shared.model("wide", hidden_size=288, intermediate_size=1152)


def tensor_parallel(ctx):
    return ctx.train(ranks=2, model=wide(ctx), lr=3e-4, tp=2, steps=30)


def pipeline(ctx):
    return ctx.train(ranks=2, pp=2, micro_batch=2, global_batch=32, steps=30)


def sharded_optimizer(ctx):
    return ctx.train(ranks=2, zero=1, steps=55)


def sharded_weights(ctx):
    return ctx.train(ranks=2, model=wide(ctx), lr=3e-4, zero=3, steps=30)


def half_precision(ctx):
    return ctx.train(ranks=2, precision="f16", loss_scale=1024, steps=55)


def one_rank(ctx):
    return ctx.train(ranks=1, precision="bf16", steps=60)


def resumed(ctx):
    stop = ctx.rng.randint(20, 40)
    ctx.note(f"resumed at step {stop}")
    constant = {"lr_schedule": "constant", "out": "run"}
    ctx.train(ranks=2, steps=stop, **constant)
    return ctx.train("--resume", "auto", ranks=2, steps=65, **constant)


def with_checkpoints(ctx):
    return ctx.train(ranks=2, checkpoint_every=25, steps=60)


def with_validation(ctx):
    return ctx.train(ranks=2, val_fraction=0.004, eval_every=25, steps=55)


# ---- recorded ----------------------------------------------------------------------------------------------------------

def record(ctx):
    """A copy of a healthy run's records, to write a fault into; whether the machine was quiet counts when that run was made."""
    def make():
        with Busy(ctx.mark) as busy:
            run = ctx.train(ranks=2, steps=60, out="base")
            others = busy.others()
        kept = os.path.join(ctx.dir, "base-run")
        shutil.copytree(run, kept, ignore=shutil.ignore_patterns("checkpoints"))
        return kept, others
    target = ctx.path("run")
    base, ctx.others = ctx.shared.once("base", make)
    if ctx.others > QUIET:
        del ctx.shared.made["base"]  # the next attempt makes another
    shutil.copytree(base, target)
    return target


def rewrite(run, name, change):
    """change(i, line, count) edits each line of a record."""
    path = os.path.join(run, name)
    found = lines(path)
    if len(found) < 3:
        raise NotPlanted(f"{name}: too few lines ({len(found)})")
    for i, line in enumerate(found):
        change(i, line, len(found))
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in found)


def data_stalls(ctx):
    """Steps wait for their samples."""
    run, every, factor = record(ctx), ctx.rng.randint(1, 4), ctx.between(0.8, 4)
    ctx.note(f"every {every} steps {factor:.1f} steps of waiting")

    def change(i, line, _):
        if i % every == 0:
            wait = line["step_s"] * factor
            line["seconds"]["data"] += wait
            stretched = line["step_s"] + wait
            for key in ("full", "causal", "hardware"):
                line["mfu"][key] *= line["step_s"] / stretched
            line["tokens_per_s"] *= line["step_s"] / stretched
            line["step_s"] = stretched
    rewrite(run, "metrics.jsonl", change)
    return run


def long_resources(run):
    """Twenty looks at the host in place of the few that a short run has time for: the same ones again, a second apart."""
    path = os.path.join(run, "resources.jsonl")
    found = lines(path)
    if len(found) < 2:
        raise NotPlanted("resources.jsonl: too few lines")
    with open(path, "w", encoding="utf-8") as f:
        for i in range(20):
            line = json.loads(json.dumps(found[1 + i % (len(found) - 1)] if len(found) > 2 else found[-1]))
            line["clock_s"], line["step"], line["interval_s"] = found[0]["clock_s"] + i, 1 + 3 * i, 1.0
            line["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(calendar.timegm(time.strptime(found[0]["time"], "%Y-%m-%dT%H:%M:%SZ")) + i))
            f.write(json.dumps(line, separators=(",", ":")) + "\n")


def memory_leak(ctx):
    """A rank takes more memory every second."""
    run = record(ctx)
    long_resources(run)
    total = 0.3 + 0.4 * ctx.rng.random()
    ctx.note(f"a rank grows by {total:.0%} of the host's memory")

    def change(i, line, count):
        grown = int(line["memory_bytes"]["total"] * total * i / count)
        pid = sorted(line["resident_bytes"])[0]
        line["resident_bytes"][pid] += grown
        line["memory_bytes"]["available"] = max(0, line["memory_bytes"]["available"] - grown)
    rewrite(run, "resources.jsonl", change)
    return run


def memory_near_limit(ctx):
    """The host has hardly any memory left, from the start."""
    run = record(ctx)
    long_resources(run)
    left = ctx.between(0.005, 0.03)
    ctx.note(f"{left:.1%} of the host's memory left")

    def change(i, line, count):
        memory = line["memory_bytes"]
        memory["available"] = int(memory["total"] * left)
        for pid in line["resident_bytes"]:
            line["resident_bytes"][pid] = int(memory["total"] * (0.95 - left) / len(line["resident_bytes"]))
    rewrite(run, "resources.jsonl", change)
    return run


def stolen_cpu(ctx):
    """The hypervisor gives the cores to other machines."""
    run = record(ctx)
    long_resources(run)
    steal = ctx.between(0.15, 0.5)
    ctx.note(f"{steal:.0%} of the CPU time stolen")

    def change(i, line, count):
        line["cpu"]["steal"] = steal
        line["cpu"]["busy"] = min(line["cpu"]["busy"], 1 - steal)
    rewrite(run, "resources.jsonl", change)

    def slower(i, line, count):
        for key in ("step_s",):
            line[key] /= 1 - steal
        line["seconds"] = {k: v / (1 - steal) for k, v in line["seconds"].items()}
        line["communication"]["exposed_s"] /= 1 - steal
        line["communication"]["total_s"] /= 1 - steal
        line["tokens_per_s"] *= 1 - steal
        line["mfu"] = {k: v * (1 - steal) for k, v in line["mfu"].items()}
    rewrite(run, "metrics.jsonl", slower)
    return run


CASES = [
    Case("data_stalls", "train", data_stalls, DATA, r"data|sample|loader|wait|stall", recorded=True),
    Case("memory_leak", "train", memory_leak, RESOURCES, r"memory|leak|grow|resident", recorded=True),
    Case("memory_near_limit", "train", memory_near_limit, RESOURCES, r"memory", recorded=True),
    Case("stolen_cpu", "train", stolen_cpu, RESOURCES, r"steal|stolen|cpu|hypervisor", recorded=True),
] + [Case("healthy_" + f.__name__, "train", f, healthy=True)
     for f in (data_parallel, tensor_parallel, pipeline, sharded_optimizer, sharded_weights, half_precision, one_rank, resumed,
               with_checkpoints, with_validation)]
