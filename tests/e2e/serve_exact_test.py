#!/usr/bin/env -S python3 -B
"""--deterministic: the same token ids alone, batched, chunked, cached, after evictions and preemptions, on several
ranks. And what the prefix cache must not tell: other people's prompts."""

import random

from serve_lib import Server, all_at_once, checks, main, scratch_folder, server_with_pages
from serve_models import WORDS, chat_model

equal, ok = checks.equal, checks.ok
SEED = random.Random(5)


def sentence(n, rng):
    return "".join(rng.choice(WORDS) + " " for _ in range(n))


def prompts_with_common_beginnings(n):
    """Of 8 families; lengths on both sides of the pages' boundaries."""
    rng = random.Random(11)
    families = [sentence(rng.randint(5, 60), rng) for _ in range(8)]
    return [families[i % 8] + sentence(rng.randint(1, 25), rng) for i in range(n)]


def answer(server, prompt, **fields):
    """Ids and their log-probabilities to the last digit: what went into them shows even where the ids are the same."""
    choice = server.completion(prompt, **{"ignore_eos": True, "logprobs": 0, "return_token_ids": True, **fields})["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def answers(server, prompts, at_once=8, **fields):
    out = []
    for i in range(0, len(prompts), at_once):
        out += all_at_once([lambda p=p: answer(server, p, **{"max_tokens": 8, **fields}) for p in prompts[i:i + at_once]], 120)
    return out


def differing(a, b):
    return [(i, x, y) for i, (x, y) in enumerate(zip(a, b)) if x != y][:3]


def cached_is_cold():
    prompts = prompts_with_common_beginnings(200)
    cold = answers(base, prompts, at_once=1, cache_prompt=False)
    equal("200 prompts have 200 answers", len({str(x) for x in cold}), 200)
    equal("cold (and filling the cache), 8 at once", differing(answers(base, prompts), cold), [])
    before = base.completion(prompts[3], max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]
    ok("the cache is used", before > 0, before)
    equal("warm", differing(answers(base, prompts), cold), [])
    # Ends in the middle of pages, then goes on from there.
    for p in prompts[:40]:
        base.completion(p, max_tokens=40, stop=[" "])
    equal("after ends by a stop string", differing(answers(base, prompts[:40]), cold[:40]), [])
    with Server(model, "--deterministic", "--threads", 1, "--no-prefix-cache") as s:
        equal("without a cache", differing(answers(s, prompts), cold), [])
        equal("where nothing is cached", s.completion(prompts[0], max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
    small, _ = server_with_pages(model, 40, "--deterministic", "--threads", 1, "--max-model-len", 512)
    with small as s:
        answers(s, prompts)
        evicted = s.metrics()["rankwright_kv_evicted_pages_total"]
        ok("a small cache evicts", evicted > 0, evicted)
        equal("after evictions", differing(answers(s, prompts, at_once=4), cold), [])


def batched_is_alone():
    prompts = prompts_with_common_beginnings(32)
    greedy = dict(max_tokens=20, cache_prompt=False)
    drawn = [dict(greedy, temperature=1, top_p=0.9, seed=i) for i in range(32)]
    alone = answers(base, prompts, at_once=1, **greedy)
    alone_drawn = [answer(base, p, **d) for p, d in zip(prompts, drawn)]
    equal("32 at once", differing(answers(base, prompts, at_once=32, **greedy), alone), [])
    order = list(range(32))
    SEED.shuffle(order)
    equal("shuffled", differing(answers(base, [prompts[i] for i in order], at_once=32, **greedy), [alone[i] for i in order]), [])
    got = all_at_once([lambda i=i: answer(base, prompts[i], **drawn[i]) for i in order])
    equal("draws: by the request's own seed, whoever is beside it", differing(got, [alone_drawn[i] for i in order]), [])
    ok("another seed, another draw", answer(base, prompts[0], **dict(drawn[0], seed=99))[0] != alone_drawn[0][0])
    n3 = base.completion(prompts[0], **dict(drawn[0], ignore_eos=True, n=3, return_token_ids=True))["choices"]
    ok("choices of one request differ", len({tuple(c["token_ids"]) for c in n3}) == 3)
    equal("and the first is the draw alone", n3[0]["token_ids"], alone_drawn[0][0])
    with Server(model, "--deterministic", "--threads", 1, "--max-batch-tokens", 7, "--max-num-seqs", 4) as s:
        equal("chunks of 7 tokens at most, 4 sequences", differing(answers(s, prompts, at_once=32, **greedy), alone), [])
    with Server(model, "--deterministic", "--threads", 2, "--block-size", 5) as s:
        equal("pages of 5 tokens, 2 threads", differing(answers(s, prompts, at_once=32, **greedy), alone), [])
    with Server(model, "--deterministic", "--threads", 1, "--tp", 2, ranks=2) as s:
        got = answers(s, prompts, at_once=32, **greedy)
        # Sums over two ranks are rounded otherwise: greedy ids may differ where two logits nearly tie.
        same = sum(x[0] == y[0] for x, y in zip(got, alone))
        ok("two ranks: the same greedy ids but for near ties", same >= 30, differing(got, alone))
        equal("and among themselves exactly", differing(answers(s, prompts, at_once=5, **greedy), got), [])


def preempted_is_undisturbed():
    rng = random.Random(2)
    prompts = [sentence(100, rng) for _ in range(50)]
    fields = dict(max_tokens=100, cache_prompt=False)
    alone = answers(base, prompts, at_once=1, **fields)
    n_tokens = 100 + max(base.post("/tokenize", {"prompt": p}).json()["count"] for p in prompts)
    wanted = int(1.2 * n_tokens / 16) + 1
    s, pages = server_with_pages(model, wanted, "--deterministic", "--threads", 1, "--max-model-len", n_tokens)
    with s:
        before = s.metrics()
        got = answers(s, prompts, at_once=50, **fields)
        equal(f"50 requests on {pages} pages, of which one takes {-(-n_tokens // 16)}: all finish, with their ids",
              differing(got, alone), [])
        s.wait_idle()
        after = s.metrics()
        preemptions = after["rankwright_preemptions_total"]
        ok("some were preempted, none too often", 0 < preemptions <= 3 * 50, preemptions)
        free = [m["rankwright_kv_free_pages"] + m["rankwright_kv_cached_pages"] for m in (before, after)]
        equal("all pages are back", free[1], free[0])
        reply = s.post("/v1/completions", {"prompt": prompts[0], "max_tokens": n_tokens})
        ok("what can never fit is refused at the door", reply.status == 400 and
           reply.error()["code"] == "context_length_exceeded", reply)
        ok("and others are served", s.works())


def salts():
    prompt = sentence(60, random.Random(77))

    def cached(**fields):
        return base.completion(prompt, max_tokens=1, **fields)["usage"]["prompt_tokens_details"]["cached_tokens"]

    equal("nobody has asked before", cached(cache_salt="A"), 0)
    ok("the same salt finds it", cached(cache_salt="A") > 0)
    equal("another does not", cached(cache_salt="B"), 0)
    equal("nor does none", cached(), 0)
    ok("each has its own now", cached(cache_salt="B") > 0 and cached() > 0)
    equal("cache_prompt false reads nothing", cached(cache_prompt=False), 0)
    fresh = sentence(60, random.Random(78))
    base.completion(fresh, max_tokens=1, cache_prompt=False)
    equal("and leaves nothing", base.completion(fresh, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"], 0)


def one_computes_others_wait():
    prompt = sentence(400, random.Random(79))
    replies = all_at_once([lambda: base.completion(prompt, max_tokens=2) for _ in range(6)])
    cached = sorted(r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in replies)
    total = replies[0]["usage"]["prompt_tokens"]
    ok("of 6 with one new prefix one computes it", cached[0] < total / 2 and all(c > 0.9 * total - 16 for c in cached[1:]), cached)


def warm_up():
    import json
    import os
    system = sentence(100, random.Random(80))
    path = os.path.join(folder, "warm.jsonl")
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps({"name": "system", "prompt": system}) + "\n")
    with Server(model, "--threads", 1, "--warmup", path) as s:
        usage = s.completion(system + "one", max_tokens=1)["usage"]
        ok("a warm prefix is there at the first request", usage["prompt_tokens_details"]["cached_tokens"] >
           usage["prompt_tokens"] / 2, usage)
        ok("and seen in /debug/memory", "system" in s.get("/debug/memory").text)


with scratch_folder() as folder:
    model, _ = chat_model(folder)
    with Server(model, "--deterministic", "--threads", 1) as base:
        main(cached_is_cold, batched_is_alone, preempted_is_undisturbed, salts, one_computes_others_wait, warm_up)
