#!/usr/bin/env -S python3 -B
"""What scripts/bench/serving measures, case by case; run that. Prints JSON lines: the machine, every run, a summary a case."""

import argparse
import contextlib
import datetime
import json
import os
import signal
import statistics
import sys
import tempfile

from serve_client import Client, Request, percentile, summary
from serve_load import Prompts, body_of
from serve_servers import PEER_FORMAT, Dserve, Failed, LlamaServer, busy_cores, cpu_name, llama_batched_bench, llama_bench, output_of, probe
from serve_shape import Shape

GIB = 1 << 30
CASES = ("alone", "batch", "load", "prefix", "stall", "many")
FLAGS = {"f32": ["--precision", "f32"], "bf16": [], "int8": ["--quantize", "int8"], "int4": ["--quantize", "int4"]}
QUIET_CORES = 0.1  # busy cores before a case, ours idle: above it others were on the machine
BIG = 5e8  # parameters from which the bar of quantised decode is that of the larger model
MEDIAN = statistics.median


class Bench:
    def __init__(self, o):
        self.o, self.shape = o, Shape(o.model)
        self.name = os.path.basename(os.path.normpath(o.model))
        self.peers = {}
        for path in filter(None, (o.peer_model or "").split(",")):
            suffix = os.path.basename(path).removesuffix(".gguf").rsplit("-", 1)[-1].lower()
            if suffix not in PEER_FORMAT:
                raise Failed(f"--peer-model {path}: expected NAME-FORMAT.gguf with FORMAT one of {', '.join(PEER_FORMAT)}")
            self.peers[PEER_FORMAT[suffix]] = path
        self.prompts = Prompts(o.seed, self.shape.vocab if o.vocab == 0 else o.vocab)
        self.quiet = True

    def line(self, **fields):
        print(json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in fields.items()}), flush=True)

    def run_line(self, case, fmt, program, pair, **result):
        self.line(case=case, model=self.name, format=fmt, program=program, pair=pair, load_average=os.getloadavg()[0], **result)

    def sum_line(self, case, fmt, unit, values, *, higher_is_better=True, **more):
        """Medians of ours and the peer's, and how many times better ours is."""
        medians = {k: MEDIAN(v) for k, v in values.items() if v}
        ratio = None
        if medians.get("peer") and medians.get("ours"):
            ratio = medians["ours"] / medians["peer"] if higher_is_better else medians["peer"] / medians["ours"]
        self.line(summary=case, model=self.name, format=fmt, unit=unit, ours=medians.get("ours"), peer=medians.get("peer"), times_better=ratio, **more)

    def bar(self, name, fmt, value, bar, *, at_least=True):
        met = value is not None and (value >= bar if at_least else value <= bar)
        self.line(bar=name, model=self.name, format=fmt, value=value, expected=f"{'>=' if at_least else '<='} {bar}", met=met)

    def look(self, case):
        """Before a case, while nothing of ours works."""
        busy = busy_cores()
        self.quiet = self.quiet and busy <= QUIET_CORES
        if busy > QUIET_CORES:
            print(f"serving: {case}: {busy:.2f} cores were busy before it: not quiet", file=sys.stderr)
        self.line(before=case, busy_cores=busy, quiet=busy <= QUIET_CORES, load_average=os.getloadavg()[0])

    def ours(self, fmt, *flags):
        memory = self.shape.weights_bytes(fmt) + int(self.o.cache_gib * GIB)
        return Dserve(os.path.join(self.o.build, "tools/dserve"), self.o.model, self.o.threads,
                      [*FLAGS[fmt], "--memory", memory, "--max-model-len", self.max_len(), *flags, *self.o.serve_flags.split()])

    def max_len(self):
        return min(self.shape.max_position, 10240)

    def theirs(self, fmt, streams, context):
        return LlamaServer(self.o.peer, self.peers[fmt], self.o.threads, streams, context)

    def ask(self, server, prompts, max_tokens, *, stream=False, concurrency=1, cache=False):
        """Closed loop; every request must succeed."""
        requests = [Request(body_of(p, max_tokens, stream=stream, cache=cache)) for p in prompts]
        took = Client(server.url).run(requests, concurrency)
        for r in requests:
            if r.error is not None:
                raise Failed(f"{server.command[0]}: {r.error}\n{server.text()[-2000:]}")
        return requests, took

    def warm(self, server, streams=1):
        """Its pages touched, its costs measured."""
        self.ask(server, self.prompts.make(max(2, streams), min(512, self.max_len() - 20)), 16, concurrency=streams)

    # -- one sequence alone

    def alone(self, fmt):
        decode, prefill = {"ours": [], "peer": []}, {"ours": [], "peer": []}
        n = self.o.decode_tokens
        with self.ours(fmt) as server:
            self.warm(server)
            memory = server.memory()
            for pair in range(self.o.pairs):
                (d,), _ = self.ask(server, self.prompts.make(1, 1), n + 1)
                (p,), _ = self.ask(server, self.prompts.make(1, 512), 1)
                decode["ours"].append(1e3 * n / d.timings["decode_ms"])
                prefill["ours"].append(512e3 / p.timings["prefill_ms"])
                self.run_line("alone", fmt, "ours", pair, decode_tokens_per_s=decode["ours"][-1], prefill_tokens_per_s=prefill["ours"][-1])
                if fmt not in self.peers:
                    continue
                peer = llama_bench(self.o.peer, self.peers[fmt], self.o.threads, 512, n)
                decode["peer"].append(peer["decode"])
                prefill["peer"].append(peer["prefill"])
                self.run_line("alone", fmt, "peer", pair, decode_tokens_per_s=peer["decode"], prefill_tokens_per_s=peer["prefill"])
        machine = probe(self.o.build, self.o.threads)  # next to what it is compared with
        self.line(probe="alone", format=fmt, **machine)
        self.judge_decode(fmt, decode, n / 2, memory, machine)
        self.judge_prefill(fmt, prefill, machine)

    def judge_decode(self, fmt, values, context, memory, machine):
        bytes_read = memory["weights_bytes"] - 4 * self.shape.vocab * self.shape.width + memory["page_bytes"] / 16 * context
        read_s, ours = bytes_read / machine["read_gb_per_s"] / 1e9, MEDIAN(values["ours"])
        dot_s = self.shape.decode_flops(context) / machine["gflops"]["f32" if fmt == "f32" else "bf16"] / 1e9
        share = ours * max(read_s, dot_s)
        self.sum_line("decode, batch 1", fmt, "tok/s", values, gb_per_s=ours * bytes_read / 1e9, read_gb_per_s=machine["read_gb_per_s"],
                      bytes_a_token=int(bytes_read), share_of_bound=share)
        small_quantised = fmt.startswith("int") and self.shape.params < BIG
        self.bar("decode, batch 1: share of the bound", fmt, share, 0.6 if small_quantised else 0.85)
        if values["peer"]:
            self.bar("decode, batch 1: times the peer", fmt, ours / MEDIAN(values["peer"]), 1.0)

    def judge_prefill(self, fmt, values, machine):
        ours = MEDIAN(values["ours"])
        gflops = ours / 512 * self.shape.prefill_flops(512) / 1e9
        share = gflops / machine["gflops"]["f32" if fmt == "f32" else "bf16"]
        self.sum_line("prefill, 512 tokens", fmt, "tok/s", values, gflops=gflops, share_of_peak=share)
        if fmt in ("f32", "bf16"):
            self.bar("prefill: share of the measured peak", fmt, share, 0.75 if fmt == "f32" else 0.65)
        if values["peer"] and fmt == "bf16":
            self.bar("prefill: times the peer", fmt, ours / MEDIAN(values["peer"]), 1.5)

    # -- sequences decoding together

    def batch(self, fmt):
        n = self.o.decode_tokens
        for streams in (16, 32):
            values = {"ours": [], "peer": []}
            with self.ours(fmt) as server:
                self.warm(server, streams)
                for pair in range(self.o.pairs):
                    prompts = self.prompts.make(streams, 128)
                    # Their blocks are in the cache when they are asked for again, so that the decodes run side by side.
                    self.ask(server, prompts, 1, cache=True)
                    requests, _ = self.ask(server, prompts, n + 1, concurrency=streams, cache=True)
                    values["ours"].append(sum(1e3 * n / r.timings["decode_ms"] for r in requests))
                    self.run_line(f"batch {streams}", fmt, "ours", pair, decode_tokens_per_s=values["ours"][-1],
                                  cached_tokens=sum(r.timings["cached_tokens"] for r in requests))
                    if fmt in self.peers:
                        values["peer"].append(llama_batched_bench(self.o.peer, self.peers[fmt], self.o.threads, streams, 128, n))
                        self.run_line(f"batch {streams}", fmt, "peer", pair, decode_tokens_per_s=values["peer"][-1])
            self.sum_line(f"decode, batch {streams}", fmt, "tok/s", values)
            if values["peer"]:
                self.bar(f"decode, batch {streams}: times the peer", fmt, MEDIAN(values["ours"]) / MEDIAN(values["peer"]), 3.0)

    # -- served streams

    def load(self, fmt):
        for n_in, n_out in ((256, 64), (128, 128)):
            case, values = f"16 streams, {n_in} in, {n_out} out", {"ours": [], "peer": []}
            with contextlib.ExitStack() as stack:
                servers = {"ours": stack.enter_context(self.ours(fmt))}
                if fmt in self.peers:
                    servers["peer"] = stack.enter_context(self.theirs(fmt, 16, 16 * 1024))
                for server in servers.values():
                    self.warm(server, 16)
                for pair in range(self.o.pairs):
                    for program, server in servers.items():
                        before = server.cpu_s()
                        requests, took = self.ask(server, self.prompts.make(16 * self.o.rounds, n_in), n_out, stream=True, concurrency=16)
                        s = summary(requests, took)
                        beside = server.beside_engine_s(before, server.cpu_s())
                        s["beside_engine_cpu_s_per_1000_tokens"] = round(1e3 * beside / s["output_tokens"], 5)
                        values[program].append(s)
                        self.run_line(case, fmt, program, pair, **s)
            self.judge_load(case, fmt, values)

    def judge_load(self, case, fmt, values):
        def pick(f):
            return {k: [f(s) for s in v] for k, v in values.items()}
        void = any(s["void"] for v in values.values() for s in v)
        for what, unit, better, f in (("output", "tok/s", True, lambda s: s["output_tokens_per_s"]),
                                      ("TTFT p50", "ms", False, lambda s: s["ttft_ms"]["p50"]),
                                      ("ITL p99", "ms", False, lambda s: s["itl_ms"]["p99"])):
            picked = pick(f)
            self.sum_line(f"{case}: {what}", fmt, unit, picked, higher_is_better=better, void=void)
            if picked["peer"]:
                ours, peer = MEDIAN(picked["ours"]), MEDIAN(picked["peer"])
                self.bar(f"{case}: {what}, times better than the peer", fmt, ours / peer if better else peer / ours, 2.5 if better else 1.0)
        self.bar(f"{case}: CPU seconds beside the engine per 1,000 tokens", fmt,
                 MEDIAN(s["beside_engine_cpu_s_per_1000_tokens"] for s in values["ours"]), 0.05, at_least=False)

    # -- a prefix from the cache

    def prefix(self, fmt):
        n = self.o.pairs * 2 + 1
        with self.ours(fmt) as server:
            self.warm(server)
            shared = self.prompts.make(n + 1, 1024, 960)
            self.ask(server, shared[:1], 1, cache=True)
            cold, warm = [], []
            for p, q in zip(self.prompts.make(n, 1024), shared[1:]):  # alternating
                (a,), _ = self.ask(server, [p], 2, stream=True)
                (b,), _ = self.ask(server, [q], 2, stream=True, cache=True)
                cold.append(1e3 * (a.times[0] - a.intended))
                warm.append(1e3 * (b.times[0] - b.intended))
                cached = b.usage["prompt_tokens_details"]["cached_tokens"]
        self.line(summary="TTFT of 1,024 tokens, 960 of them cached", model=self.name, format=fmt, unit="ms", cold=MEDIAN(cold), cached=MEDIAN(warm),
                  cached_tokens=cached, cold_runs=cold, cached_runs=warm)
        self.bar("TTFT with the prefix cached, of the cold one's", fmt, MEDIAN(warm) / MEDIAN(cold), 0.15, at_least=False)

    # -- running streams while a long prompt is computed

    def stall(self, fmt):
        n_long = min(8192, self.max_len() - 512)
        with self.ours(fmt) as server:
            self.warm(server, 4)
            unbounded = self.streams_and_long(server, n_long)
        # Twice the rhythm of the streams alone: the bar is three times.
        budget = self.o.itl_budget_ms or max(1.0, round(2e3 * unbounded["idle"]["p50"], 1))
        bounded = []
        with self.ours(fmt, "--itl-budget-ms", budget) as server:
            self.warm(server, 4)
            self.streams_and_long(server, n_long)  # the scheduler has seen what it plans with
            for pair in range(self.o.pairs):
                bounded.append(self.streams_and_long(server, n_long))
                self.run_line("stall", fmt, "ours", pair, itl_budget_ms=budget, **bounded[-1])
        ratios = [b["during"]["p99"] / b["idle"]["p99"] for b in bounded]
        self.line(summary=f"4 streams while {n_long} tokens prefill", model=self.name, format=fmt, unit="s", itl_budget_ms=budget,
                  without_budget=unbounded, idle_p99=MEDIAN(b["idle"]["p99"] for b in bounded), during_p99=MEDIAN(b["during"]["p99"] for b in bounded),
                  long_ttft_s=MEDIAN(b["long_ttft_s"] for b in bounded))
        self.bar("4 streams while a long prompt prefills: p99 ITL, of idle", fmt, MEDIAN(ratios), 3.0, at_least=False)

    def streams_and_long(self, server, n_long):
        """Gaps of 4 streams before a prompt of n_long tokens is sent and until its first token."""
        room = self.max_len() - 32
        streams = [Request(body_of(p, room, cache=False, stream=True), "stream", due=0) for p in self.prompts.make(4, 16)]
        long = Request(body_of(self.prompts.make(1, n_long)[0], 2, cache=False, stream=True), "long", due=self.o.idle_s)
        Client(server.url).run([*streams, long], until=long)
        for r in (*streams, long):
            if r.error is not None:
                raise Failed(f"stall: {r.tag}: {r.error}")
            if r.tag == "stream" and not r.cut:
                raise Failed(f"stall: a stream of {room} tokens ended before the long prompt: take a larger model, or --idle-s below {self.o.idle_s}")
        gaps = [g for r in streams for g in r.gaps()]
        settled = max(r.times[0] for r in streams) + 0.2
        idle = [g for at, g in gaps if settled < at <= long.intended]
        during = [g for at, g in gaps if long.intended < at <= long.times[0]]
        if not idle or not during:
            raise Failed(f"stall: {len(idle)} gaps before and {len(during)} during the long prompt: take a longer --idle-s")
        def spread(values):
            return {"p50": percentile(values, 0.5), "p99": percentile(values, 0.99), "max": max(values), "n": len(values)}
        return {"idle": spread(idle), "during": spread(during), "long_ttft_s": long.times[0] - long.intended}

    # -- many streams at once

    def many(self, fmt):
        with self.ours(fmt) as server:
            self.warm(server, 16)
            before = server.cpu_s()
            requests = [Request(body_of(p, 32, stream=True, cache=False)) for p in self.prompts.make(256, 32)]
            took = Client(server.url).run(requests, 256)
            s = summary(requests, took)
            s["beside_engine_cpu_s_per_1000_tokens"] = round(1e3 * server.beside_engine_s(before, server.cpu_s()) / max(s["output_tokens"], 1), 5)
        self.run_line("256 streams", fmt, "ours", 0, **s)
        self.bar("256 streams open: errors", fmt, s["errors"], 0, at_least=False)


def parse():
    p = argparse.ArgumentParser(prog="serving", description=__doc__)
    p.add_argument("--build", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--peer", default="")
    p.add_argument("--peer-model", default="")
    p.add_argument("--formats", default="f32,bf16,int8,int4")
    p.add_argument("--cases", default=",".join(CASES))
    p.add_argument("--pairs", type=int, default=3)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--decode-tokens", type=int, default=128)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--cache-gib", type=float, default=3)
    p.add_argument("--itl-budget-ms", type=float, default=0)
    p.add_argument("--idle-s", type=float, default=6)
    p.add_argument("--vocab", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--serve-flags", default="")
    o = p.parse_args()
    o.build, o.model, o.peer = (os.path.abspath(x) if x else x for x in (o.build, o.model, o.peer))
    o.peer_model = ",".join(os.path.abspath(x) for x in o.peer_model.split(",") if x)
    return o


def main():
    o = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of the servers' ends
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w", encoding="ascii") as f:
        f.write("-10")  # the client before the servers: what it sees is when tokens came, not when it was let to look
    with tempfile.TemporaryDirectory(prefix="serving-") as work:
        os.chdir(work)  # the peer's programs leave a log where they are started
        try:
            bench = Bench(o)
            bench.line(benchmark="serving", date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), cpu=cpu_name(),
                       cores=os.cpu_count(), threads=o.threads, version=output_of([os.path.join(o.build, "tools/dserve"), "--version"]).strip(),
                       model=bench.name, params=bench.shape.params, peer=sorted(bench.peers), pairs=o.pairs, load_average=os.getloadavg()[0],
                       machine=probe(o.build, o.threads))
            for case in o.cases.split(","):
                for fmt in o.formats.split(","):
                    bench.look(f"{case}, {fmt}")
                    getattr(bench, case)(fmt)
            bench.line(quiet=bench.quiet, note="" if bench.quiet else "others were on the machine: read ratios of pairs, not numbers")
        except Failed as e:
            print(f"serving: {e}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
