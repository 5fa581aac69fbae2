#!/usr/bin/env -S python3 -B
"""The wire: what clients of the OpenAI API, load generators and monitoring expect of replies, streams and errors."""

import json
import math
import re
import shutil
import subprocess

from serve_http import Connection, text_of
from serve_lib import Server, checks, main, scratch_folder, wait_for
from serve_models import chat_model

equal, ok, holds = checks.equal, checks.ok, checks.holds
USAGE = {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}


def models():
    reply = server.get("/v1/models").json()
    equal("a list of models", reply["object"], "list")
    entry = reply["data"][0]
    ok("with what benchmarks read", entry["object"] == "model" and isinstance(entry["created"], int) and
       entry["owned_by"] and entry["root"] and entry["parent"] is None, entry)
    equal("and the longest sequence", entry["max_model_len"], 8192)
    name = entry["id"]
    equal("one model by name", server.get("/v1/models/" + name).json()["id"], name)
    reply = server.get("/v1/models/other")
    equal("another is not found", (reply.status, reply.error()["code"]), (404, "model_not_found"))
    reply = server.post("/v1/completions", {"model": "other", "prompt": "x"})
    equal("nor served", (reply.status, reply.error()["param"]), (404, "model"))
    ok("named, it is served", server.completion("one", model=name, max_tokens=1)["model"] == name)


def completion():
    reply = server.completion("one two", max_tokens=5)
    ok("id", reply["id"].startswith("cmpl-"), reply["id"])
    equal("object", reply["object"], "text_completion")
    ok("created, model, fingerprint", isinstance(reply["created"], int) and reply["model"] and
       reply["system_fingerprint"], reply)
    choice = reply["choices"][0]
    equal("a choice's fields", {k: choice[k] for k in ("index", "logprobs", "finish_reason")},
          {"index": 0, "logprobs": None, "finish_reason": "length"})
    ok("its text", isinstance(choice["text"], str) and choice["text"], choice)
    equal("usage", set(reply["usage"]), USAGE)
    equal("max_tokens is 16 by default", server.completion("one two", ignore_eos=True)["usage"]["completion_tokens"], 16)
    forms = ["one two", ["one two"], server.post("/tokenize", {"prompt": "one two"}).json()["tokens"]]
    texts = [server.completion(p, max_tokens=4)["choices"][0]["text"] for p in (*forms, [forms[2]])]
    ok("text, list of texts, ids, list of ids: one answer", len(set(texts)) == 1, texts)
    reply = server.completion(["one ", "two "], n=2, max_tokens=3, temperature=1, seed=7, echo=True)
    equal("choice = prompt * n + j", [(c["index"], c["text"][:4]) for c in sorted(reply["choices"], key=lambda c: c["index"])],
          [(0, "one "), (1, "one "), (2, "two "), (3, "two ")])
    reply = server.completion("one two three", echo=True, max_tokens=0)
    equal("echo alone", (reply["choices"][0]["text"], reply["usage"]["completion_tokens"]), ("one two three", 0))
    reply = server.completion("one two three", echo=True, max_tokens=0, logprobs=1)
    logprobs = reply["choices"][0]["logprobs"]
    ok("with scores of the prompt, of which the first token has none",
       logprobs["token_logprobs"][0] is None and len(logprobs["token_logprobs"]) == reply["usage"]["prompt_tokens"] and
       all(x <= 0 for x in logprobs["token_logprobs"][1:]), logprobs)


def chat():
    reply = server.chat("one two", max_tokens=5)
    ok("id", reply["id"].startswith("chatcmpl-"), reply["id"])
    equal("object", reply["object"], "chat.completion")
    choice = reply["choices"][0]
    equal("role", choice["message"]["role"], "assistant")
    ok("content", isinstance(choice["message"]["content"], str), choice)
    equal("finish_reason", choice["finish_reason"], "length")
    a = server.chat("one two", max_tokens=3)["choices"][0]["message"]["content"]
    b = server.chat([{"role": "user", "content": [{"type": "text", "text": "one two"}]}], max_tokens=3)
    equal("content parts are text", b["choices"][0]["message"]["content"], a)
    reply = server.chat("one", max_tokens=9, max_completion_tokens=2, ignore_eos=True)
    equal("max_completion_tokens supersedes max_tokens", reply["usage"]["completion_tokens"], 2)
    reply = server.chat("one", ignore_eos=True, stop=[" "], temperature=0)
    ok("no max_tokens is the rest of the context", reply["choices"][0]["finish_reason"] == "stop", reply)
    equal("n", [c["index"] for c in server.chat("one", n=3, max_tokens=1)["choices"]], [0, 1, 2])


def streams():
    for path, body in (("/v1/completions", {"prompt": "one two"}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "one two"}]})):
        is_chat = "messages" in body
        s = server.stream(path, {**body, "max_tokens": 6, "ignore_eos": True})
        events = list(s)
        ok(f"{path}: an event stream", s.headers["content-type"].startswith("text/event-stream"), s.headers)
        ok("ends with [DONE]", s.done and s.lines[-1] == "data: [DONE]", s.lines[-1:])
        equal("its chunks", {e["object"] for e in events}, {"chat.completion.chunk" if is_chat else "text_completion"})
        ok("of one id", len({e["id"] for e in events}) == 1)
        equal("finish_reason once, at the end", [e["choices"][0]["finish_reason"] for e in events if e["choices"][0]["finish_reason"]],
              ["length"])
        ok("without usage where none is asked for", all(not e.get("usage") for e in events))
        if is_chat:
            roles = [e["choices"][0]["delta"].get("role") for e in events]
            ok("the role comes once, with the first token", roles[0] == "assistant" and not any(roles[1:]) and
               text_of(events[0]["choices"][0]), events[0])
        whole = server.post(path, {**body, "temperature": 0, "max_tokens": 6, "ignore_eos": True}).json()["choices"][0]
        equal("the same text as at once", "".join(text_of(e["choices"][0]) for e in events), text_of(whole))

        g = server.gather(path, {**body, "max_tokens": 6, "ignore_eos": True, "stream_options": {"include_usage": True}})
        ok("include_usage: one more chunk without choices", g.events[-1]["choices"] == [] and
           g.events[-1]["usage"]["completion_tokens"] == 6, g.events[-1])
        ok("and null before", all("usage" in e and e["usage"] is None for e in g.events[:-1]), g.events[0])
        g = server.gather(path, {**body, "max_tokens": 6, "ignore_eos": True,
                                 "stream_options": {"include_usage": True, "continuous_usage_stats": True}})
        counts = [e["usage"]["completion_tokens"] for e in g.events]
        ok("continuous_usage_stats: running usage", counts == sorted(counts) and counts[-1] == 6 and counts[0] >= 1, counts)
        g = server.gather(path, {**body, "n": 3, "max_tokens": 4, "ignore_eos": True})
        equal("n streams", (sorted(g.finish), set(g.finish.values())), ([0, 1, 2], {"length"}))


def logprobs():
    reply = server.chat("one two", max_tokens=4, logprobs=True, top_logprobs=3)
    content = reply["choices"][0]["logprobs"]["content"]
    equal("an entry a token", len(content), 4)
    e = content[0]
    equal("its fields", set(e), {"token", "logprob", "bytes", "top_logprobs"})
    equal("top_logprobs", (len(e["top_logprobs"]), set(e["top_logprobs"][0])), (3, {"token", "logprob", "bytes"}))
    ok("greedy: the likeliest is the chosen one", all(x["top_logprobs"][0]["token"] == x["token"] and
       math.isclose(x["top_logprobs"][0]["logprob"], x["logprob"], abs_tol=1e-6) for x in content), content)
    equal("bytes make the text", b"".join(bytes(x["bytes"]) for x in content).decode(), text_of(reply["choices"][0]))
    ok("top_logprobs 0 is allowed", server.chat("one", max_tokens=1, logprobs=True)["choices"][0]["logprobs"]["content"][0]
       ["top_logprobs"] == [])
    reply = server.completion("one two", max_tokens=4, logprobs=2)
    lp = reply["choices"][0]["logprobs"]
    equal("completions: four lists", {k: len(v) for k, v in lp.items()},
          {"tokens": 4, "token_logprobs": 4, "top_logprobs": 4, "text_offset": 4})
    equal("text_offset", [lp["text_offset"][i + 1] - lp["text_offset"][i] for i in range(3)], [len(t) for t in lp["tokens"][:3]])
    reply = server.chat("one", max_tokens=1, logprobs=True, top_logprobs=20, logit_bias={"5": -100})
    ok("no infinities", "Infinity" not in json.dumps(reply) and "NaN" not in json.dumps(reply))
    g = server.gather("/v1/chat/completions", {"messages": [{"role": "user", "content": "one two"}], "max_tokens": 4,
                                                "logprobs": True, "top_logprobs": 1})
    streamed = [x for event in g.events for c in event["choices"] if c.get("logprobs") for x in c["logprobs"]["content"]]
    equal("streamed like at once", [x["token"] for x in streamed], [x["token"] for x in content])


def errors():
    for name, path, body, status in (
            ("malformed JSON", "/v1/completions", "{", 400), ("not an object", "/v1/completions", "[]", 400),
            ("a wrong type", "/v1/completions", {"prompt": "x", "max_tokens": "many"}, 400),
            ("no messages", "/v1/chat/completions", {}, 400), ("no such route", "/v1/nothing", {}, 404)):
        reply = server.post(path, body)
        e = reply.error()
        ok(f"{name}: {status} in OpenAI's form", reply.status == status and e["type"] == "invalid_request_error", reply)
        ok("with a request id", reply.headers.get("x-request-id"), reply.headers)
    equal("the parameter is named", server.post("/v1/completions", {"prompt": "x", "top_p": 7}).error()["param"], "top_p")
    equal("405 for another method", server.get("/v1/completions").status, 405)
    reply = server.completion("one", max_tokens=1, no_such_field=[1, {}])
    ok("unknown fields are accepted", reply["choices"])
    server.completion("one", max_tokens=1, no_such_field=2)
    equal("and told once", server.log().count("no_such_field"), 1)
    ok("an unsupported answer format is refused, not ignored",
       server.post("/v1/completions", {"prompt": "x", "response_format": {"type": "json_object"}}).status == 400)


def ids_of_requests():
    reply = server.post("/v1/completions", {"prompt": "one", "max_tokens": 1}, {"x-request-id": "mine-1"})
    equal("x-request-id comes back", reply.headers["x-request-id"], "mine-1")
    ok("and is in the answer's id", "mine-1" in reply.json()["id"], reply)
    trace = "0af7651916cd43dd8448eb211c80319c"
    reply = server.post("/v1/completions", {"prompt": "one", "max_tokens": 1}, {"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
    ok("traceparent: the trace goes on", re.fullmatch(f"00-{trace}-[0-9a-f]{{16}}-01", reply.headers["traceparent"]), reply.headers)
    ok("not the span", "b7ad6b7169203331" not in reply.headers["traceparent"])
    reply = server.get("/v1/models")
    ok("every reply has an id of its own", reply.headers["x-request-id"] != server.get("/v1/models").headers["x-request-id"])


def tokens():
    a = server.post("/tokenize", {"model": None, "prompt": "one two", "add_special_tokens": True}).json()
    ok("tokenize: tokens, count, max_model_len", a["count"] == len(a["tokens"]) and a["max_model_len"] == 8192, a)
    equal("with the beginning of text", a["tokens"][0], specials["<s>"])
    b = server.post("/tokenize", {"content": "one two", "add_special": False}).json()["tokens"]
    equal("another server's names for it", b, a["tokens"][1:])
    back = server.post("/detokenize", {"tokens": b}).json()
    equal("and back, under both names", (back["prompt"], back["content"]), ("one two", "one two"))
    pieces = server.post("/tokenize", {"content": "one", "with_pieces": True}).json()["tokens"]
    equal("with pieces", "".join(p["piece"] for p in pieces), "one")
    equal("ids out of range", server.post("/detokenize", {"tokens": [99999]}).status, 400)


def status():
    equal("health", (server.get("/health").status, server.get("/health").json()["status"]), (200, "ok"))
    ok("version", server.get("/version").json()["version"])
    reply = server.get("/metrics")
    ok("metrics are Prometheus text", reply.headers["content-type"].startswith("text/plain; version=0.0.4"), reply.headers)
    names = {m.group(1) for m in re.finditer(r"^# TYPE (\S+) ", reply.text, re.M)}
    ok("typed, with help", len(names) > 10 and names == {m.group(1) for m in re.finditer(r"^# HELP (\S+) ", reply.text, re.M)})
    if shutil.which("promtool"):
        done = subprocess.run(["promtool", "check", "metrics"], input=reply.text, capture_output=True, text=True, timeout=60,
                              check=False)
        ok("promtool accepts them", done.returncode == 0, done.stdout + done.stderr)
    memory = server.get("/debug/memory")
    ok("debug/memory is JSON", memory.status == 200 and memory.json(), memory)
    reply = server.completion("one two", max_tokens=4, timings=True)
    ok("timings when asked for", {"queue_ms", "prefill_ms", "decode_ms"} <= set(reply["timings"]), reply)
    c = Connection(server.port)
    for _ in range(3):
        c.send("GET", "/health")
        equal("connections are kept", c.read_reply().status, 200)
    c.close()


def vllm_series():
    with Server(model, "--metrics-compat", "vllm", "--threads", 1) as s:
        s.completion("one two", max_tokens=4)
        text = s.get("/metrics").text
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total",
                     "generation_tokens_total", "request_success_total", "time_to_first_token_seconds_bucket",
                     "inter_token_latency_seconds_bucket", "e2e_request_latency_seconds_count", "cache_config_info"):
            ok(f"vllm:{name}", re.search(rf"^vllm:{name}\{{", text, re.M))
        wait_for(lambda: s.metrics()["vllm:generation_tokens_total"] == 4, "4 tokens to be counted", 5)


def api_key():
    with Server(model, "--threads", 1, wait=False, env={"RANKWRIGHT_API_KEY": "s3cret"}) as s:
        s.wait_ready()
        for method, path in (("GET", "/v1/models"), ("POST", "/v1/completions"), ("POST", "/tokenize"), ("GET", "/metrics"),
                             ("GET", "/debug/memory"), ("GET", "/load"), ("GET", "/nothing")):
            reply = s.request(method, path, b"{}" if method == "POST" else None)
            ok(f"{path} asks for the key", reply.status == 401 and reply.error()["code"] == "invalid_api_key", reply)
        equal("a wrong one", s.get("/v1/models", {"authorization": "Bearer s3cres"}).status, 401)
        ok("the key is not in the log", "s3cret" not in s.log())
        s.key = "s3cret"
        ok("with it all is well", s.works())


with scratch_folder() as folder:
    model, specials = chat_model(folder)
    with Server(model, "--threads", 2) as server:
        main(models, completion, chat, streams, logprobs, errors, ids_of_requests, tokens, status, vllm_series, api_key)
