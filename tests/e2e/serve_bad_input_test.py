#!/usr/bin/env -S python3 -B
"""Hostile and careless clients: every bad request gets a 4xx or a closed connection, and the next one works."""

import contextlib
import json
import resource
import socket
import time

from serve_http import Connection
from serve_lib import Server, all_at_once, checks, main, scratch_folder, wait_for
from serve_models import chat_model

equal, ok, holds = checks.equal, checks.ok, checks.holds
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def fields():
    """(name, path, body): one field wrong each, or the whole body."""
    user = [{"role": "user", "content": "x"}]
    plain = {"prompt": "x", "max_tokens": 2}
    for name, change in (
            ("an empty prompt", {"prompt": ""}), ("no prompts", {"prompt": []}), ("an empty one of two", {"prompt": ["x", ""]}),
            ("a null prompt", {"prompt": None}), ("a prompt that is a number", {"prompt": 7}),
            ("a prompt of objects", {"prompt": [{}]}), ("mixed prompts", {"prompt": [1, "x"]}),
            ("ids beyond the vocabulary", {"prompt": [1, 512]}), ("negative ids", {"prompt": [-1]}),
            ("huge ids", {"prompt": [10 ** 30]}), ("ids that are not whole", {"prompt": [1.5]}),
            ("a prompt beyond the context", {"prompt": "one " * 20000}), ("ids beyond the context", {"prompt": [5] * 9000}),
            ("n of a million", {"n": 10 ** 6}), ("n 0", {"n": 0}), ("n negative", {"n": -1}), ("n a text", {"n": "2"}),
            ("max_tokens negative", {"max_tokens": -1}), ("max_tokens huge", {"max_tokens": 10 ** 9}),
            ("max_tokens beyond 64 bits", {"max_tokens": 10 ** 40}), ("max_tokens a float", {"max_tokens": 2.5}),
            ("temperature negative", {"temperature": -1}), ("temperature a text", {"temperature": "hot"}),
            ("temperature huge", {"temperature": 1e300}), ("top_p above 1", {"top_p": 1.01}), ("top_p negative", {"top_p": -0.1}),
            ("top_k below -1", {"top_k": -2}), ("min_p above 1", {"min_p": 2}),
            ("repetition_penalty 0", {"repetition_penalty": 0}), ("presence_penalty 3", {"presence_penalty": 3}),
            ("frequency_penalty a list", {"frequency_penalty": []}), ("seed a text", {"seed": "x"}),
            ("logit_bias of an unknown id", {"logit_bias": {"512": 1}}), ("of a negative id", {"logit_bias": {"-1": 1}}),
            ("of a word", {"logit_bias": {"one": 1}}), ("too strong", {"logit_bias": {"1": 1000}}),
            ("twice", {"logit_bias": {"7": 1, "07": 1}}), ("a list", {"logit_bias": [1]}), ("a null in it", {"logit_bias": {"1": None}}),
            ("an empty stop", {"stop": ""}), ("an empty one of two", {"stop": ["a", ""]}), ("stops without end", {"stop": ["a"] * 1000}),
            ("a stop of a megabyte", {"stop": "a" * (1 << 20)}), ("a stop of numbers", {"stop": [1]}),
            ("stop ids beyond the vocabulary", {"stop_token_ids": [512]}), ("stop ids negative", {"stop_token_ids": [-5]}),
            ("logprobs of a thousand", {"logprobs": 1000}), ("logprobs negative", {"logprobs": -1}), ("stream a text", {"stream": "yes"}),
            ("stream_options without stream", {"stream_options": {"include_usage": True}}),
            ("stream_options a list", {"stream": True, "stream_options": []}), ("min_tokens beyond max_tokens", {"min_tokens": 9}),
            ("best_of beyond n", {"best_of": 5}), ("a suffix", {"suffix": "x"}), ("a salt of nothing", {"cache_salt": ""}),
            ("a request_id with a line feed", {"request_id": "a\nb"}), ("priority a text", {"priority": "high"}),
            ("another model", {"model": "gpt-5"}), ("a model that is a number", {"model": 1}),
            ("echo a text", {"echo": "x"}), ("a grammar", {"guided_json": {}, "structured_outputs": {"regex": "a"}})):
        yield name, COMPLETIONS, {**plain, **change}
    for name, change in (
            ("no messages", {"messages": None}), ("empty messages", {"messages": []}), ("messages a text", {"messages": "x"}),
            ("a message that is a text", {"messages": ["x"]}), ("no role", {"messages": [{"content": "x"}]}),
            ("a role that is a number", {"messages": [{"role": 1, "content": "x"}]}), ("no content", {"messages": [{"role": "user"}]}),
            ("a picture", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
            ("a part that is a text", {"messages": [{"role": "user", "content": ["x"]}]}),
            ("top_logprobs without logprobs", {"top_logprobs": 3}), ("top_logprobs of 21", {"logprobs": True, "top_logprobs": 21}),
            ("logprobs a number", {"logprobs": 3}), ("a template of its own", {"chat_template": "{{ 1 }}"}),
            ("a tool that must be called", {"tools": [], "tool_choice": "required"}), ("tools a text", {"tools": "x"})):
        yield "chat: " + name, CHAT, {"messages": user, "max_tokens": 2, **change}
    for name, raw in (
            ("nothing", b""), ("half an object", b'{"prompt":'), ("a list", b"[1]"), ("a text", b'"x"'), ("null", b"null"),
            ("two objects", b'{"prompt":"x"}{"prompt":"y"}'), ("a comma too many", b'{"prompt":"x",}'), ("a zero byte", b'{"prompt":"x"}\0'),
            ("NaN", b'{"prompt":"x","temperature":NaN}'), ("infinity", b'{"prompt":"x","temperature":1e999}'),
            ("a lone surrogate", b'{"prompt":"\\ud800"}'), ("surrogates the wrong way", b'{"prompt":"\\udc00\\ud800"}'),
            ("a lone surrogate as bytes", b'{"prompt":"\xed\xa0\x80"}'), ("bytes that are not UTF-8", b'{"prompt":"\xff\xfe"}'),
            ("an overlong character", b'{"prompt":"\xc0\xaf"}'), ("a cut character", b'{"prompt":"\xf0\x9f\xa6'),
            ("nesting without end", b'{"prompt":' + b"[" * 100000), ("deep objects", b'{"a":' * 5000 + b"1" + b"}" * 5000),
            ("a key twice", b'{"prompt":"x","n":1,"n":1000000}'), ("a million keys", b"{" + b",".join(b'"k%d":1' % i for i in range(300000)) + b"}"),
            ("UTF-16", '{"prompt":"x"}'.encode("utf-16")), ("a number of a million digits", b'{"prompt":"x","seed":' + b"9" * 1000000 + b"}")):
        yield "body: " + name, COMPLETIONS, raw


def bad_requests():
    bad = []
    for name, path, body in fields():
        reply = server.post(path, body)
        fine = 400 <= reply.status < 500
        with contextlib.suppress(ValueError, KeyError, AssertionError):
            fine = fine and bool(reply.error())
            if fine and server.works():
                continue
        bad.append((name, reply))
    ok("each of them: 4xx with an error object, and the next request works", not bad, "\n".join(f"{n}: {r}" for n, r in bad))
    for name, path, body in (("detokenize: ids", "/detokenize", {"tokens": [10 ** 12]}), ("detokenize: none", "/detokenize", {}),
                             ("tokenize: a number", "/tokenize", {"prompt": 1}), ("tokenize: none", "/tokenize", {})):
        reply = server.post(path, body)
        ok(name, reply.status == 400 and reply.error(), reply)


def same_id():
    body = {"prompt": "x", "max_tokens": 2000, "ignore_eos": True, "request_id": "same"}
    replies = all_at_once([lambda: server.post(COMPLETIONS, body) for _ in range(3)])
    equal("of 3 with one request_id one is served", sorted(r.status for r in replies), [200, 400, 400])
    equal("afterwards the id is free", server.post(COMPLETIONS, {**body, "max_tokens": 1}).status, 200)


def raw(data, timeout_s=20.0):
    """What the server sends back to these bytes until it closes (b"": it closed); None: it did neither."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout_s) as s:
        with contextlib.suppress(ConnectionError):
            s.sendall(data)
        got = b""
        try:
            while piece := s.recv(65536):
                got += piece
                if b"\r\n\r\n" in got and got.startswith(b"HTTP/1.1 4"):
                    return got
        except ConnectionError:
            pass
        except TimeoutError:
            return got or None
        return got


def bad_http():
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
    for name, data in (
            ("noise", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256))),
            ("no version", b"GET /health\r\n\r\n"), ("an unknown version", b"GET /health HTTP/9.9\r\nhost: x\r\n\r\n"),
            ("a header without a colon", b"GET /health HTTP/1.1\r\nnonsense\r\n\r\n"),
            ("a header of a megabyte", b"GET /health HTTP/1.1\r\nx: " + b"a" * (1 << 20) + b"\r\n\r\n"),
            ("100,000 headers", b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * 100000 + b"\r\n"),
            ("a target of a megabyte", b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nhost: x\r\n\r\n"),
            ("two lengths", head + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!"),
            ("a negative length", head + b"content-length: -5\r\n\r\nhello"),
            ("a length that is no number", head + b"content-length: five\r\n\r\nhello"),
            ("a length beyond 64 bits", head + b"content-length: 99999999999999999999999\r\n\r\nhello"),
            ("length and chunks", head + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
            ("chunks of no size", head + b"transfer-encoding: chunked\r\n\r\nxyz\r\n"),
            ("a chunk of 2^64", head + b"transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nhello"),
            ("an unknown transfer encoding", head + b"transfer-encoding: gzip\r\n\r\nhello"),
            ("a body of 100 MB announced", head + b"content-length: 104857600\r\n\r\n")):
        got = raw(data)
        refused = (got or b"").startswith((b"HTTP/1.1 4", b"HTTP/1.1 501"))  # 501: a transfer encoding that is not there
        ok(f"{name}: refused or closed", got == b"" or refused, got and got[:200])
    ok("and the next request works", server.works())
    with contextlib.suppress(ConnectionError):
        reply = server.post(COMPLETIONS, b'{"prompt":"' + b"a" * (100 << 20) + b'"}')
        equal("a body of 100 MB that is sent", reply.status, 413)
    ok("the next works", server.works())
    c = Connection(server.port)
    c.send("POST", COMPLETIONS, json.dumps({"prompt": "one two", "max_tokens": 2}), {"expect": "100-continue"})
    status, _ = c.read_head()
    if status == 100:
        status = c.read_head()[0]
    equal("Expect: 100-continue is served", status, 200)
    c.close()
    c = Connection(server.port)
    body = json.dumps({"prompt": "one two", "max_tokens": 2}).encode()
    c.sock.sendall(head + b"transfer-encoding: chunked\r\n\r\n" + b"".join(b"1\r\n%c\r\n" % x for x in body) + b"0\r\n\r\n")
    equal("a body in chunks of one byte is served", c.read_reply().status, 200)
    c.sock.sendall((head + b"content-length: %d\r\n\r\n" % len(body) + body) * 2)
    equal("two requests at once on a connection are answered in turn", [c.read_reply().status for _ in range(2)], [200, 200])
    c.close()
    c = Connection(server.port)
    c.sock.sendall(head + b"content-length: 100\r\n\r\n{")
    c.reset()
    ok("a client that goes within its body harms nobody", server.works())


def slow_clients():
    """One drips a header, some are silent, one does not read. (The time-out of bodies is a minute: a test of its own
    in tests/net has a shorter one.)"""
    begin = time.monotonic()
    dripping = Connection(server.port)
    dripping.sock.sendall(b"GET /health HTTP/1.1\r\nx: ")
    silent = [Connection(server.port) for _ in range(20)]
    lazy = server.stream(COMPLETIONS, {"prompt": "one", "max_tokens": 8000, "ignore_eos": True, "logprobs": 20})
    ok("beside slow clients others are served", server.works())

    def given_up():
        with contextlib.suppress(OSError):
            dripping.sock.sendall(b"a")
            return dripping.closed(0.5)
        return True

    wait_for(given_up, "a header that drips to be given up", 30)
    ok("a header that drips is given up", time.monotonic() - begin < 30)
    ok("and others are served", server.works())
    lazy.reset()
    for c in silent:
        c.close()


def many_connections():
    wanted = 10000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted + 500), hard))
    held = []
    try:
        for _ in range(min(wanted, min(hard, wanted + 500) - 200)):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", server.port))
            held.append(s)
            if len(held) % 500 == 0:
                time.sleep(0.05)
        ok(f"{len(held)} idle connections: a request works", wait_for(server.works, "a request among them to work", 30))
        equal("/health too", server.get("/health").status, 200)
    finally:
        for s in held:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    ok("and after them", server.works())


with scratch_folder() as folder:
    model, _ = chat_model(folder)
    with Server(model, "--threads", 1) as server:
        main(bad_requests, same_id, bad_http, many_connections, slow_clients)
