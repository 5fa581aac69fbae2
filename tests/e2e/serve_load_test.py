#!/usr/bin/env -S python3 -B
"""Under load: running streams keep their rhythm while a long prompt is computed, control endpoints answer, many
connections stay open."""

import statistics
import threading
import time

from serve_lib import Server, all_at_once, checks, main, percentile, scratch_folder, wait_for
from serve_models import words_model

equal, ok = checks.equal, checks.ok
COMPLETIONS = "/v1/completions"


def going(n, **fields):
    return {"prompt": "one two", "max_tokens": n, "ignore_eos": True, "return_token_ids": True, **fields}


def long_prompt(server, n_tokens):
    words = "one two three four five six seven eight nine zero "
    per = server.post("/tokenize", {"prompt": words * 10}).json()["count"] / 10
    return words * int(n_tokens / per)


def gaps_of(streams, begin, end):
    gaps = []
    for g in streams:
        times = [t for t in g.stream.times if begin <= t <= end]
        gaps += [b - a for a, b in zip(times, times[1:])]
    return gaps


def streams_and_a_long_prompt():
    budget_ms = 25
    with Server(model, "--threads", 1, "--itl-budget-ms", budget_ms, "--max-batch-tokens", 2048) as s:
        prompt = long_prompt(s, 5000)
        begin = time.monotonic()
        s.completion(prompt, max_tokens=1, cache_prompt=False)
        s.completion(prompt, max_tokens=1, cache_prompt=False)  # by now the scheduler has measured what it plans with
        solo_s = (time.monotonic() - begin) / 2
        alone = s.ids(**going(1500))
        done = []
        threads = [threading.Thread(target=lambda: done.append(s.gather(COMPLETIONS, going(4000))), daemon=True) for _ in range(4)]
        for t in threads:
            t.start()
        wait_for(lambda: s.load()[0] == 4, "4 streams")
        time.sleep(1)
        begin_idle, begin_long = time.monotonic() - 0.9, time.monotonic()
        s.completion(prompt, max_tokens=1, cache_prompt=False)
        end = time.monotonic()
        for t in threads:
            t.join(120)
        equal("4 streams end", len(done), 4)
        idle, during = gaps_of(done, begin_idle, begin_long), gaps_of(done, begin_long, end)
        bound = 3 * max(percentile(idle, 0.95), budget_ms / 1000)
        ok(f"gaps between tokens while a long prompt is computed: 95 % below {bound * 1000:.0f} ms",
           percentile(during, 0.95) <= bound,
           f"idle p95 {percentile(idle, 0.95)}, during p95 {percentile(during, 0.95)}, {len(during)} gaps")
        ok("and none waits for the whole of it", max(during) < max(0.5 * solo_s, 0.25), (max(during), solo_s))
        ok("the long prompt is not starved", end - begin_long < 8 * solo_s + 1, (end - begin_long, solo_s))
        ok("the streams' tokens are there", all(len(g.ids[0]) == 4000 for g in done) and len(alone) == 1500)


def control_while_computing():
    with Server(model, "--threads", 1, "--max-batch-tokens", 2048) as s:
        prompt = long_prompt(s, 7500)
        stop = threading.Event()

        def busy():
            while not stop.is_set():
                s.completion(prompt, max_tokens=1, cache_prompt=False)

        thread = threading.Thread(target=busy, daemon=True)
        thread.start()
        wait_for(lambda: s.load()[0] == 1, "the prompt to be computed")
        for path in ("/health", "/metrics", "/load", "/v1/models"):
            took = [s.get(path).took_s for _ in range(25)]
            ok(f"{path} answers while a prompt is computed: median below 50 ms", statistics.median(took) < 0.05, took)
        stop.set()
        thread.join(60)


def many_streams():
    n = 256
    with Server(model, "--threads", 1, "--max-num-seqs", 64, "--max-queue", n) as s:
        alone = s.completion("one two", max_tokens=10)["choices"][0]["text"]
        got = all_at_once([lambda: s.gather(COMPLETIONS, {"prompt": "one two", "max_tokens": 10}) for _ in range(n)], 120)
        broken = [g for g in got if isinstance(g, Exception) or not g.stream.done or g.texts[0] != alone]
        equal(f"{n} streams at once, all to their end", broken[:3], [])
        s.wait_idle()
        wait_for(lambda: s.metrics()["rankwright_generation_tokens_total"] == 10 * (n + 1), "all tokens to be counted", 5)


with scratch_folder() as folder:
    model = words_model(folder)
    main(streams_and_a_long_prompt, control_while_computing, many_streams)
