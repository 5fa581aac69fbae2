"""The work of scripts/bench/load_peers."""

import argparse
import asyncio
import contextlib
import glob
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

WORDS = "time year people way day man thing woman life child world school state family group country problem hand part place".split()


class ScriptedServer:
    """Completions whose tokens come at scripted times: `period` different scripts in turn, so that every `period` requests on end are asked
    to wait for the same times, whatever was sent before. In a thread; closed with the program."""

    def __init__(self, ttft_ms, itl_ms, period):
        self.ttft_s, self.itl_s, self.period, self.served = ttft_ms / 1000, itl_ms / 1000, period, 0
        self.ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.serve()), daemon=True).start()
        self.ready.wait(30)

    def medians(self, n):
        """What a perfect client sees of `period` requests of n tokens."""
        draws = [random.Random(k) for k in range(self.period)]
        return {"ttft_ms": statistics.median(1000 * self.ttft_s * d.uniform(0.7, 1.3) for d in draws),
                "tpot_ms": statistics.median(1000 * self.itl_s * statistics.mean(d.uniform(0.5, 1.5) for _ in range(n - 1)) for d in draws)}

    async def serve(self):
        server = await asyncio.start_server(self.connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.ready.set()
        await server.serve_forever()

    async def connection(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                begin = time.monotonic()
                lines = head.split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if lines[0].startswith("POST /v1/completions"):
                    await self.stream(writer, json.loads(body), begin)
                elif lines[0].startswith("GET /v1/models"):
                    self.whole(writer, 200, {"object": "list", "data": [{"id": "scripted", "object": "model", "root": "scripted"}]})
                elif lines[0].startswith("GET /health"):
                    self.whole(writer, 200, {})
                else:
                    self.whole(writer, 404, {"error": {"message": "no such route"}})
                await writer.drain()
        writer.close()

    @staticmethod
    def whole(writer, status, value):
        data = json.dumps(value).encode()
        writer.write(f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)

    async def stream(self, writer, request, begin):
        draw = random.Random(self.served % self.period)
        self.served += 1
        n, usage = request["max_tokens"], {"prompt_tokens": 100, "completion_tokens": 0}
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        at = begin + self.ttft_s * draw.uniform(0.7, 1.3)
        for i in range(n):
            await asyncio.sleep(max(0, at - time.monotonic()))
            usage.update(completion_tokens=i + 1, total_tokens=usage["prompt_tokens"] + i + 1)
            self.event(writer, {"choices": [{"index": 0, "text": " word", "finish_reason": "length" if i + 1 == n else None}], "usage": usage})
            at += self.itl_s * draw.uniform(0.5, 1.5)
        self.event(writer, {"choices": [], "usage": usage})
        data = b"data: [DONE]\n\n"
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n0\r\n\r\n")
        await writer.drain()

    @staticmethod
    def event(writer, value):
        value = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "scripted", **value}
        data = b"data: " + json.dumps(value).encode() + b"\n\n"
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def start_dserve(o):
    process = subprocess.Popen([f"{o.build}/tools/dserve", "--model", o.model, "--port", "0", "--no-prefix-cache"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    url = json.loads(process.stdout.readline())["url"]
    for _ in range(600):
        with contextlib.suppress(OSError):
            if urllib.request.urlopen(url + "/health", timeout=5).status == 200:
                return process, url
        time.sleep(0.2)
    raise SystemExit("load_peers: dserve did not get ready")


def run(command, folder, env=None):
    done = subprocess.run([str(c) for c in command], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1800,
                          check=False, env={**os.environ, **(env or {})})
    if done.returncode != 0:
        raise SystemExit(f"load_peers: {command[0]} ended with {done.returncode}:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")
    return done.stdout


def ours(o, url, model, folder):
    out = run([f"{o.build}/tools/dbench", "serve", "--url", url, "--dataset", "jsonl", "--dataset-file", "ours.jsonl", "--max-concurrency",
               o.concurrency, "--ignore-eos", "on", "--num-prompts", o.requests, "--json"], folder)
    d = json.loads(out)["details"]
    return {"ttft_ms": d["median_ttft_ms"], "tpot_ms": d["median_tpot_ms"], "completed": d["completed"]}


def guidellm(o, url, model, folder):
    profile = "kind=synchronous" if o.concurrency == 1 else f"kind=concurrent,streams={o.concurrency}"
    run([o.peers["guidellm"], "run", "--backend", f"kind=openai_http,target={url},model={model},request_format=/v1/completions", "--profile",
         profile, "--constraint", f"kind=max_requests,count={o.requests}", "--data", "kind=json_file,path=guidellm.jsonl", "--output",
         "kind=json,path=guidellm.json", "--disable-console"], folder)
    with open(os.path.join(folder, "guidellm.json"), encoding="utf-8") as f:
        m = json.load(f)["benchmarks"][0]["metrics"]
    # Its TPOT counts the first token, its ITL is a request's mean gap: our TPOT.
    return {"ttft_ms": m["time_to_first_token_ms"]["successful"]["median"], "tpot_ms": m["inter_token_latency_ms"]["successful"]["median"],
            "completed": m["request_totals"]["successful"]}


def aiperf(o, url, model, folder):
    extra = {"max_tokens": o.output_tokens, "min_tokens": o.output_tokens, "ignore_eos": True, "temperature": 0}
    run([o.peers["aiperf"], "profile", "-m", model, "-u", url, "--endpoint-type", "completions", "--streaming", "--tokenizer",
         os.path.abspath(o.tokenizer or o.model), "--input-file", "aiperf.jsonl", "--custom-dataset-type", "single_turn",
         "--dataset-sampling-strategy", "sequential", "--request-count", o.requests, "--concurrency", o.concurrency, "--extra-inputs",
         json.dumps(extra), "--use-server-token-count", "--use-legacy-max-tokens", "--ui", "none", "--warmup-request-count", 1,
         "--artifact-dir", "aiperf"], folder)
    with open(glob.glob(os.path.join(folder, "aiperf", "**", "profile_export_aiperf.json"), recursive=True)[0], encoding="utf-8") as f:
        m = json.load(f)
    # Its inter_token_latency is a request's mean gap: our TPOT.
    return {"ttft_ms": m["time_to_first_token"]["p50"], "tpot_ms": m["inter_token_latency"]["p50"], "completed": m["request_count"]["avg"]}


def write_prompts(o, folder):
    draw = random.Random(1)
    forms = {"ours": lambda p: {"prompt": p, "max_tokens": o.output_tokens}, "aiperf": lambda p: {"text": p},
             "guidellm": lambda p: {"prompt": p, "output_tokens_count": o.output_tokens}}
    prompts = [" ".join(draw.choice(WORDS) for _ in range(100)) for _ in range(o.requests)]
    for name, form in forms.items():
        with open(os.path.join(folder, name + ".jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(form(p)) + "\n" for p in prompts)


def arguments():
    p = argparse.ArgumentParser(prog="load_peers")
    p.add_argument("--build", required=True)
    p.add_argument("--peer", action="append", default=[], required=True)
    p.add_argument("--tokenizer")
    p.add_argument("--model")
    for name, value in (("rounds", 3), ("requests", 21), ("concurrency", 1), ("output-tokens", 32)):
        p.add_argument("--" + name, type=int, default=value)
    for name, value in (("ttft-ms", 500.0), ("itl-ms", 20.0), ("bar", 0.02)):
        p.add_argument("--" + name, type=float, default=value)
    o = p.parse_args()
    o.build = os.path.abspath(o.build)
    o.peers = {}
    for peer in o.peer:
        name, _, program = peer.partition("=")
        if name not in TOOLS or not os.access(program, os.X_OK):
            p.error(f"--peer {peer}: expected guidellm=PROGRAM or aiperf=PROGRAM")
        o.peers[name] = os.path.abspath(program)
    if "aiperf" in o.peers and not (o.tokenizer or o.model):
        p.error("--peer aiperf: expected --tokenizer DIR beside it")
    return o


TOOLS = {"guidellm": guidellm, "aiperf": aiperf}


def main():
    o = arguments()
    process = scripted = None
    if o.model:
        process, url = start_dserve(o)
    else:
        server = ScriptedServer(o.ttft_ms, o.itl_ms, o.requests)
        url, scripted = server.url, server.medians(o.output_tokens)
    try:
        with urllib.request.urlopen(url + "/v1/models", timeout=10) as reply:
            model = json.load(reply)["data"][0]["id"]
        tools = {"dbench": ours, **{name: TOOLS[name] for name in o.peers}}
        found = {name: [] for name in tools}
        with tempfile.TemporaryDirectory() as folder:
            write_prompts(o, folder)
            for i in range(o.rounds):
                for name in list(tools)[:: 1 if i % 2 == 0 else -1]:
                    values = tools[name](o, url, model, folder)
                    found[name].append(values)
                    print(json.dumps({"round": i + 1, "tool": name, **values, "load_average": os.getloadavg()[0]}), flush=True)
    finally:
        if process is not None:
            process.terminate()
            process.wait(30)
    medians = {name: {k: statistics.median(v[k] for v in runs) for k in ("ttft_ms", "tpot_ms")} for name, runs in found.items()}
    ratios = {name: {k: medians["dbench"][k] / medians[name][k] for k in medians[name]} for name in o.peers}
    worst = max(abs(r - 1) for both in ratios.values() for r in both.values())
    print(json.dumps({"summary": medians, "ratio": ratios, "scripted": scripted, "bar": o.bar, "worst": worst,
                      "holds": worst <= o.bar}))
    sys.exit(0 if worst <= o.bar else 3)


if __name__ == "__main__":
    main()
