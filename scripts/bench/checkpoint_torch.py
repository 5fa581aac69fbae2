#!/usr/bin/env python3
"""The peers of scripts/bench/checkpoint: the same bytes through torch.save and torch.distributed.checkpoint, synchronous and
asynchronous, onto the same disk, fsynced. Prints one JSON line: medians of blocking and of total seconds."""
import argparse
import json
import os
import shutil
import statistics
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def tensors(total):
    """The shapes of checkpoint_bench, over `total` bytes."""
    shapes = [(768, 2304), (768,), (768, 768), (3072, 768), (768,), (768, 3072)]
    state, left, i = {}, total, 0
    while left > 0:
        shape = shapes[i % 6]
        if torch.Size(shape).numel() * 4 > left:
            shape = (left // 4,)
        state[f"blocks.{i // 6}.{i % 6}"] = torch.rand(shape)
        left -= state[f"blocks.{i // 6}.{i % 6}"].numel() * 4
        i += 1
    return state


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--reps", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    state = tensors(args.mib << 20)
    place = os.path.join(args.dir, "torch")

    def torch_save():
        with open(place + ".pt", "wb") as f:
            torch.save(state, f)
            f.flush()
            os.fsync(f.fileno())

    def save():
        dcp.save(state, checkpoint_id=place)

    def async_save():
        return dcp.async_save(state, checkpoint_id=place)

    times = {}
    for r in range(args.reps + 1):  # the first is a warm-up
        for name, action in (("torch_save", torch_save), ("dcp_save", save), ("dcp_async_save", async_save)):
            shutil.rmtree(place, ignore_errors=True)
            if os.path.exists(place + ".pt"):
                os.remove(place + ".pt")
            begin = time.monotonic()
            future = action()
            blocked = time.monotonic() - begin
            if future is not None:
                future.result()
            if r > 0:
                times.setdefault(name, []).append((blocked, time.monotonic() - begin))
    shutil.rmtree(place, ignore_errors=True)
    if os.path.exists(place + ".pt"):
        os.remove(place + ".pt")
    result = {"bench": "checkpoint_torch", "torch": torch.__version__, "mib": args.mib, "threads": args.threads, "reps": args.reps}
    for name, pairs in times.items():
        total = statistics.median(t for _, t in pairs)
        result[name] = {"blocking_s": statistics.median(b for b, _ in pairs), "total_s": total, "gb_per_s": (args.mib << 20) / total / 1e9}
    print(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
