#!/usr/bin/env -S python3 -B
"""Load for any server with OpenAI's /v1/completions: closed loop (so many streams, each sends its next request when the last one
ended) or open loop (Poisson arrivals). Prints one JSON object; exit code 1 when a request failed, 3 when the run is void because the
client itself was too busy."""

import argparse
import json
import os
import random
import sys
import urllib.error
import urllib.request

from serve_client import Client, Request, summary

WORDS = ("the of and to in that he shall unto for I his a lord they be is him not them it with all thou thy was god which my me said but "
         "ye their have will thee from as are when this out were upon man you by israel king son up there people came had house into on "
         "her come one we children s before your also day land men let go no made hand us saying if at every then an she now so").split()


class Prompts:
    """Random prompts of so many tokens, the first prefix_tokens of them the same in all."""

    def __init__(self, seed, vocab, first_id=1, as_text=False):
        self.random, self.vocab, self.first_id, self.as_text = random.Random(seed), vocab, first_id, as_text

    def ids(self, n):
        if self.as_text:
            return [self.random.choice(WORDS) for _ in range(n)]
        return [self.random.randrange(self.first_id, self.vocab) for _ in range(n)]

    def make(self, n_prompts, n_tokens, prefix_tokens=0):
        prefix = self.ids(prefix_tokens)
        prompts = [prefix + self.ids(n_tokens - prefix_tokens) for _ in range(n_prompts)]
        return [" ".join(p) for p in prompts] if self.as_text else prompts


def body_of(prompt, max_tokens, *, model=None, stream=True, cache=True, ignore_eos=True, temperature=0.0):
    """A request's fields; what one server knows and another does not is ignored by the latter."""
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": temperature, "stream": stream, "cache_prompt": cache}
    if model:
        body["model"] = model
    if ignore_eos:
        body["ignore_eos"] = True
    if stream:
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    else:
        body["timings"] = True
    return body


def served_model(url, api_key):
    request = urllib.request.Request(url.rstrip("/").removesuffix("/v1") + "/v1/models", headers={"Authorization": f"Bearer {api_key}"} if api_key else {})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.load(reply)["data"][0]["id"]


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--url", required=True, help="http://HOST:PORT")
    p.add_argument("--model", default="", help="default: the first that the server names")
    p.add_argument("--api-key", default="")
    p.add_argument("--requests", type=int, default=64)
    p.add_argument("--concurrency", type=int, default=16, help="closed loop: streams at a time")
    p.add_argument("--rate", type=float, default=0, help="open loop instead: requests a second, Poisson")
    p.add_argument("--prompt-tokens", type=int, default=256)
    p.add_argument("--prefix-tokens", type=int, default=0, help="of them, the same in all prompts")
    p.add_argument("--max-tokens", type=int, default=64)
    p.add_argument("--vocab", type=int, default=32000, help="token ids are drawn below this")
    p.add_argument("--first-id", type=int, default=1, help="and from this on")
    p.add_argument("--as-text", action="store_true", help="words instead of token ids")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--temperature", type=float, default=0)
    p.add_argument("--honour-eos", action="store_true", help="let an end-of-text token end a reply")
    p.add_argument("--no-cache", action="store_true", help="cache_prompt false")
    p.add_argument("--no-stream", action="store_true", help="whole replies: no TTFT and ITL")
    p.add_argument("--timeout", type=float, default=600, help="seconds for a request")
    o = p.parse_args()
    for name in ("requests", "prompt_tokens", "max_tokens"):
        if getattr(o, name) < 1:
            p.error(f"--{name.replace('_', '-')}: expected at least 1")
    if not 0 <= o.prefix_tokens < o.prompt_tokens:
        p.error(f"--prefix-tokens {o.prefix_tokens}: expected fewer than the {o.prompt_tokens} of --prompt-tokens")
    if o.rate <= 0 and o.concurrency < 1:
        p.error("expected --concurrency of at least 1, or a --rate")
    return o


def main():
    o = parse()
    try:
        model = o.model or served_model(o.url, o.api_key)
        client = Client(o.url, o.api_key, o.timeout)
    except (OSError, ValueError, KeyError, IndexError, urllib.error.URLError) as e:
        print(f"serve_load: {o.url}: {e}", file=sys.stderr)
        return 2
    prompts = Prompts(o.seed, o.vocab, o.first_id, o.as_text).make(o.requests, o.prompt_tokens, o.prefix_tokens)
    arrivals, due = random.Random(o.seed + 1), 0.0
    requests = []
    for prompt in prompts:
        requests.append(Request(body_of(prompt, o.max_tokens, model=model, stream=not o.no_stream, cache=not o.no_cache,
                                        ignore_eos=not o.honour_eos, temperature=o.temperature), due=due if o.rate > 0 else None))
        due += arrivals.expovariate(o.rate) if o.rate > 0 else 0
    took = client.run(requests, 0 if o.rate > 0 else o.concurrency)
    result = {"benchmark": "serve_load", "url": o.url, "model": model, "loop": "open" if o.rate > 0 else "closed",
              "rate": o.rate or None, "concurrency": None if o.rate > 0 else o.concurrency, "prompt_tokens_each": o.prompt_tokens,
              "prefix_tokens": o.prefix_tokens, "max_tokens": o.max_tokens, "seed": o.seed, "load_average": os.getloadavg()[0],
              **summary(requests, took)}
    print(json.dumps(result))
    if result["void"]:
        print(f"serve_load: void: the client took {result['client_cpu_share']:.2f} of a core", file=sys.stderr)
        return 3
    return 1 if result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
