#!/usr/bin/env -S python3 -B
"""dbench serve against a dserve of a tiny model: every token counted, texts the same as alone, hang-ups that leave nothing behind,
a full queue, rates searched for, and what is said of wrong flags and servers."""

import json
import os
import socket
import subprocess
import threading

from serve_lib import BIN, Server, checks, main, scratch_folder, server_with_pages, wait_for
from serve_models import words_model

equal, ok, holds = checks.equal, checks.ok, checks.holds


class Run:
    def __init__(self, *flags, json_out=True, env=None, timeout_s=120):
        command = [os.path.join(BIN, "dbench"), "serve", *map(str, flags), *(["--json"] if json_out else [])]
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False,
                              env={**os.environ, **(env or {})})
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.record = json.loads(self.out) if json_out and self.out.startswith("{") else None
        self.details = self.record["details"] if self.record else None

    def __repr__(self):
        return f"{self.code}\n{self.out[-1500:]}\n{self.err[-1500:]}"


def load(server, *flags, **options):
    return Run("--url", f"http://127.0.0.1:{server.port}", "--vocab-size", 200, *flags, **options)


def open_and_closed_loop():
    with Server(model, "--threads", 1) as s:
        begun = s.metrics()["rankwright_generation_tokens_total"]
        r = load(s, "--request-rate", 40, "--num-prompts", 30, "--input-len", "5..60", "--output-len", "1..9", "--slo-ttft-ms", 60000)
        equal("open loop: ends well", r.code, 0)
        d = r.details
        equal("30 requests completed", (d["completed"], d["failed"], d["num_prompts"], d["request_rate"]), (30, 0, 30, 40.0))
        made = s.metrics()["rankwright_generation_tokens_total"] - begun
        ok("output tokens are those that the server made, the warm-up's aside", 0 < made - d["total_output_tokens"] <= 9, (made, d))
        ok("every chunk's tokens are known", d["tokens_exact"] is True)
        equal("objective kept", d["attainment"], 1.0)
        ok("goodput is all of it", abs(d["request_goodput"] - d["request_throughput"]) < 1e-9)
        for name in ("ttft", "tpot", "itl", "e2el", "ttft_from_due", "e2el_from_due", "itl_token", "queue", "prefill", "decode", "network"):
            ok(f"{name} is there and not negative", d[f"median_{name}_ms"] is not None and d[f"p99_{name}_ms"] >= 0, d)
        ok("what users waited is at least what the server took", d["median_ttft_from_due_ms"] >= d["median_ttft_ms"])
        equal("no leak", d["leaks"], [])
        metrics = {m["name"]: m for m in r.record["metrics"]}
        equal("record: counts are gated exactly", (metrics["completed"]["kind"], metrics["completed"]["samples"]), ("count", [30.0]))
        equal("record: a time is of kind time", metrics["median_ttft_from_due_ms"]["kind"], "time")

        again = load(s, "--request-rate", 40, "--num-prompts", 30, "--input-len", "5..60", "--output-len", "1..9").details
        equal("the same seed asks the same", (again["total_input_tokens"], again["total_output_tokens"]),
              (d["total_input_tokens"], d["total_output_tokens"]))

        r = load(s, "--max-concurrency", 3, "--num-prompts", 12, "--input-len", 16, "--output-len", 20, "--repeats", 2, "--save-detailed",
                 "--vllm-json", "flat.json")
        d = r.details
        equal("closed loop: exact tokens", (d["total_input_tokens"], d["total_output_tokens"]), (24 * 16, 24 * 20))
        ok("closed loop: 3 at a time", d["max_concurrent_requests"] <= 3 and d["mean_concurrent_requests"] > 1.5, d["mean_concurrent_requests"])
        equal("two repeats: counts are sums, each repeat is there", (d["completed"], d["num_prompts"], [x["completed"] for x in d["repeats"]]), (24, 24, [12] * 2))
        rates = sorted(x["output_throughput"] for x in d["repeats"])
        ok("and rates their medians", abs(d["output_throughput"] - sum(rates) / 2) < 1e-9 * rates[1], (d["output_throughput"], rates))
        ok("what others took is known of a server on this host, and decides", (d["others_cpu_share"] is None or r.record["quiet"] == (
            max(x["others_cpu_share"] for x in d["repeats"]) <= 0.1 and not d["void"])), (d["others_cpu_share"], r.record["quiet"]))
        equal("a sample a repeat", [len(m["samples"]) for m in r.record["metrics"]], [2] * len(r.record["metrics"]))
        equal("repeats find nothing of each other in the cache", d["total_cached_tokens"], 0)
        equal("arrays of every request", ([len(d[k]) for k in ("input_lens", "ttfts", "itls", "errors")], d["output_lens"]), ([24] * 4, [20] * 24))
        with open(os.path.join(folder, "flat.json"), encoding="utf-8") as f:
            flat = json.load(f)
        equal("the flat object has vllm's keys", [k for k in ("date", "model_id", "duration", "completed", "mean_tpot_ms", "p99_itl_ms",
                                                              "request_goodput", "total_token_throughput", "max_concurrency") if k not in flat], [])

        # Defaults fit the model that is served: no length and no vocabulary has to be said.
        r = Run("--url", f"http://127.0.0.1:{s.port}", "--num-prompts", 2, "--output-len", 4)
        equal("the default vocabulary is one that small models have", (r.code, r.details["completed"]), (0, 2))

        text = load(s, "--num-prompts", 5, "--input-len", 8, "--output-len", 4, "--price", 3, json_out=False)
        for part in ("TTFT (sent)", "5 ok", "a million output tokens", "leak check    the server is back", "TPOT: (E2E - TTFT)"):
            holds(f"the table has {part!r}", text.out, part)


def datasets():
    with Server(model, "--threads", 1) as s:
        d = load(s, "--dataset", "shared-prefix", "--input-len", 80, "--prefix-len", 64, "--prefixes", 1, "--output-len", 2, "--num-prompts", 8,
                 "--max-concurrency", 1).details
        equal("shared prefixes are found in the cache", d["total_cached_tokens"], 7 * 64)
        d = load(s, "--dataset", "multi-turn", "--turns", 3, "--think-s", 0.01, "--input-len", 32, "--output-len", 4, "--num-prompts", 6,
                 "--request-rate", 50).details
        equal("turns grow by answer and question", d["total_input_tokens"], 2 * (32 + 68 + 104))
        ok("and find their history", d["total_cached_tokens"] >= 2 * (32 + 64), d["total_cached_tokens"])
        with open(os.path.join(folder, "trace.jsonl"), "w", encoding="utf-8") as f:
            for i in range(6):
                f.write(json.dumps({"timestamp": 100 * i, "input_length": 20 + i, "output_length": 3, "hash_ids": [i % 2]}) + "\n")
        d = load(s, "--trace", "trace.jsonl", "--trace-speed", 2).details
        equal("a trace's lengths", (d["total_input_tokens"], d["total_output_tokens"]), (6 * 20 + 15, 18))
        ok("at its times", 0.25 <= d["duration"], d["duration"])
        answer = s.completion("one two three", max_tokens=6)["choices"][0]["text"]
        with open(os.path.join(folder, "lines.jsonl"), "w", encoding="utf-8") as f:
            for golden in (answer, answer + "x"):
                f.write(json.dumps({"prompt": "one two three", "max_tokens": 6, "golden": golden}) + "\n")
        r = load(s, "--dataset", "jsonl", "--dataset-file", "lines.jsonl", "--strict")
        equal("a text that is not the golden one is a failure", (r.code, r.details["ends"]), (3, {"ok": 1, "wrong_text": 1}))
        r = load(s, "--endpoint", "chat", "--num-prompts", 3, "--input-len", 12, "--output-len", 4)
        equal("chat with a model that has no template: at the warm-up", r.code, 1)
        holds("in the server's words", r.err, "chat template")
        r = load(s, "--plain", "--prompt-form", "text", "--num-prompts", 3, "--input-len", 12, "--output-len", 4)
        equal("OpenAI's own fields alone", (r.code, r.details["completed"], r.details["median_queue_ms"]), (0, 3, None))


def checks_under_load():
    spans = os.path.join(folder, "out")
    with Server(model, "--threads", 1, "--deterministic", "--out", spans, "--log-spans") as s:
        r = load(s, "--golden", 6, "--num-prompts", 24, "--input-len", "10..40", "--output-len", 12, "--max-concurrency", 8, "--strict",
                 "--server-spans", os.path.join(spans, "spans.jsonl"))
        equal("goldens hold under load", (r.code, r.details["golden_checked"], r.details["ends"]), (0, 6, {"ok": 24}))
        equal("spans joined", (r.details["server_spans"]["joined"], r.details["server_spans"]["missing"]), (24, 0))
        ok("tokenizing is a span", r.details["server_spans"]["median_tokenize_ms"] >= 0)
        r = load(s, "--disconnect-after", 3, "--disconnect-share", 0.25, "--num-prompts", 20, "--input-len", 10, "--output-len", 400,
                 "--max-concurrency", 10)
        equal("hang-ups are asked for, and leave nothing behind", (r.code, r.details["disconnected"], r.details["completed"],
                                                                   r.details["failed"], r.details["leaks"]), (0, 5, 15, 0, []))
        equal("attainment is of the others", r.details["attainment"], 1.0)
        # Streams that go on after the load are what a leak looks like.
        before = s.metrics()["rankwright_generation_tokens_total"]
        found = []
        thread = threading.Thread(target=lambda: found.append(
            load(s, "--request-rate", 20, "--num-prompts", 20, "--input-len", 8, "--output-len", 2, "--leak-wait", 0.2)))
        thread.start()
        wait_for(lambda: s.metrics()["rankwright_generation_tokens_total"] >= before + 6, "the load to begin")
        others = [s.stream("/v1/completions", {"prompt": "one", "max_tokens": 8000, "ignore_eos": True}) for _ in range(4)]
        thread.join(60)
        equal("a server that is still busy afterwards: exit code 3", found[0].code, 3)
        holds("says what is above its level", found[0].err, "rankwright_sequences_running 0 before, 4 after")
        for stream in others:
            stream.reset()


def api_key():
    with Server(model, "--threads", 1, "--api-key", "k") as locked:
        r = load(locked, "--num-prompts", 2, "--output-len", 2, "--input-len", 8)
        equal("no key", r.code, 1)
        holds("says so", r.err, "--api-key")
        r = load(locked, "--num-prompts", 2, "--output-len", 2, "--input-len", 8, env={"OPENAI_API_KEY": "k"})
        equal("a key from the environment", (r.code, "\"k\"" in r.out), (0, False))


def full_queue():
    s, _ = server_with_pages(model, 24, "--threads", 1, "--max-model-len", 256, "--max-num-seqs", 2, "--max-queue", 2)
    with s:
        r = load(s, "--num-prompts", 24, "--input-len", 100, "--output-len", 100)
        equal("a load that is refused in part is told, no failure", r.code, 0)
        ends = r.details["ends"]
        ok("429 is a category of its own", ends.get("refused_429", 0) > 0 and ends["ok"] > 0, ends)
        ok("all are accounted for", sum(ends.values()) == 24 and r.details["failed"] == 24 - ends["ok"], ends)
        ok("and the rate of refusals", abs(r.details["reject_rate"] - ends["refused_429"] / 24) < 1e-9)
        r = load(s, "--num-prompts", 300, "--input-len", 200, "--output-len", 100)
        short = Run("--url", f"http://127.0.0.1:{s.port}", "--num-prompts", 2, "--max-concurrency", 1)
        equal("lengths nobody asked for are shortened to the context", (short.code, short.details["total_input_tokens"], short.details["total_output_tokens"]),
              (0, 2 * 205, 2 * 51))
        holds("which is told", short.err, "--input-len")
        equal("longer than the server's limit: before anything is sent", (r.code, "at most 256" in r.err), (2, True))


def search():
    with Server(model, "--threads", 1) as s:
        r = load(s, "--find-rate", "--slo-e2e-ms", 30000, "--probe-duration", 0.2, "--input-len", 8, "--output-len", 2, "--rate-tolerance", 0.5,
                 "--request-rate", 200, "--attainment", 0.9, "--price", 1)
        found = r.details["find_rate"]
        ok("a rate is found", r.code == 0 and found["rate"] >= 100, r)
        equal("it is the record's metric", [m["samples"] for m in r.record["metrics"] if m["name"] == "max_rate"], [[found["rate"]]])
        r = load(s, "--find-rate", "--slo-ttft-ms", 0.001, "--probe-duration", 0.1, "--input-len", 8, "--output-len", 2, "--request-rate", 4000)
        equal("none: exit code 3", (r.code, r.details["find_rate"]["rate"]), (3, 0.0))
        holds("and why", r.err, "not even requests one at a time")


def bad_input():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    r = Run("--url", f"http://127.0.0.1:{port}")
    equal("nobody there", r.code, 1)
    holds("names the port", r.err, str(port))
    for flags, part in ((["--url", "nonsense"], "nonsense"), (["--url", "https://127.0.0.1:1"], "http://"),
                        ([], "--url"), (["--url", "http://127.0.0.1:1", "--reqest-rate", "1"], "did you mean"),
                        (["--url", "http://127.0.0.1:1", "--find-rate"], "--slo-ttft-ms"),
                        (["--url", "http://127.0.0.1:1", "--dataset", "jsonl"], "--dataset-file"),
                        (["--url", "http://127.0.0.1:1", "--input-len", "9..1"], "--input-len"),
                        (["--url", "http://127.0.0.1:1", "--vllm-json", "no/such/folder/x.json"], "--vllm-json"),
                        (["--url", "http://127.0.0.1:1", "--dataset", "shared-prefix", "--prefix-len", "999", "--input-len", "8"], "--prefix-len"),
                        (["--url", "http://127.0.0.1:1", "--golden", "2", "--temperature", "1"], "--golden")):
        r = Run(*flags)
        equal(f"{' '.join(flags[2:]) or flags}: usage", r.code, 2)
        holds("names it", r.err, part)
    with Server(model, "--threads", 1) as s:
        r = load(s, "--model", "other")
        equal("a model that is not served", r.code, 2)
        holds("says which are", r.err, "lists: ")
        r = load(s, "--num-prompts", 3, "--input-len", 8, "--output-len", 2, "--extra-body", '{"top_p": 7}')
        equal("a request that the server refuses: at the warm-up", r.code, 1)
        holds("with its words", r.err, "top_p")


with scratch_folder() as folder:
    model = words_model(folder)
    main(open_and_closed_loop, datasets, checks_under_load, api_key, full_queue, search, bad_input)
