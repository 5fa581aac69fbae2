#!/usr/bin/env -S python3 -B
"""dbench doctor looks at servers that something was planted in, and at ones that are well."""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time

from serve_http import Connection, Stream
from serve_lib import BIN, Server, checks, main, scratch_folder, server_with_pages, wait_for
from serve_models import words_model

ok, equal, holds = checks.ok, checks.equal, checks.holds
COMPLETIONS = "/v1/completions"
WINDOW_S = 1


def doctor(*arguments):
    """(exit code, {"findings": ...} or None, standard error)"""
    done = subprocess.run([f"{BIN}/dbench", "doctor", "--json", "--window-s", str(WINDOW_S), *map(str, arguments)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr


def url(server):
    return f"http://127.0.0.1:{server.port}"


def told(diagnosis):
    return "\n".join(f"{f['severity']} {f['id']} {f.get('effect_of', '')}: {f['explanation']}" for f in diagnosis["findings"])


def serious(diagnosis):
    return [f["id"] for f in diagnosis["findings"] if f["severity"] != "info"]


def finds(name, expected, *arguments):
    """The planted cause is the first finding; what else is serious is its effect."""
    code, diagnosis, errors = doctor(*arguments)
    if not ok(f"{name}: the doctor answers", diagnosis is not None, errors):
        return
    findings = diagnosis["findings"]
    ok(f"{name}: {expected} is the first finding", findings and findings[0]["id"] == expected, told(diagnosis))
    others = [f["id"] for f in findings[1:] if f["severity"] != "info" and f.get("effect_of") is None]
    equal(f"{name}: and nothing else is a cause", others, [])
    ok(f"{name}: with numbers and a fix", findings and findings[0]["evidence"] and findings[0]["fix"], findings)
    equal(f"{name}: a warning, no failure", code, 0)


def is_well(name, *arguments):
    code, diagnosis, errors = doctor(*arguments)
    if ok(f"{name}: the doctor answers", diagnosis is not None, errors):
        ok(f"{name}: nothing above info", serious(diagnosis) == [] and code == 0, told(diagnosis))


@contextlib.contextmanager
def load(*clients):
    """Runs each client(), over and over, on a thread of its own."""
    stop = threading.Event()

    def run(client):
        while not stop.is_set():
            with contextlib.suppress(OSError, AssertionError):
                client()

    threads = [threading.Thread(target=run, args=(c,), daemon=True) for c in clients]
    for t in threads:
        t.start()
    try:
        yield
    finally:
        stop.set()
        for t in threads:
            t.join(30)


def asks(server, prompt, n, **fields):
    return lambda: server.completion(prompt, max_tokens=n, ignore_eos=True, **fields)


def finished(server, n):
    wait_for(lambda: server.metrics()["rankwright_sequences_finished_total"] >= n, f"{n} sequences to end")


def well_and_dead():
    with Server(model, "--threads", 1) as s:
        is_well("a fresh server", url(s))

        def now_and_then():
            s.completion("three four", max_tokens=30, ignore_eos=True)
            time.sleep(0.05)

        with load(now_and_then, now_and_then):
            finished(s, 12)
            is_well("light load", url(s))
        is_well("idle again", url(s) + "/")
        with socket.socket() as closed:  # bound, not listening: nobody answers there
            closed.bind(("127.0.0.1", 0))
            gone = f"http://127.0.0.1:{closed.getsockname()[1]}"
            code, _, errors = doctor(gone)
            equal("a dead server: exit code", code, 1)
            holds("and the message says where", errors, gone.removeprefix("http://"))
            code, diagnosis, _ = doctor(url(s), gone)
            equal("one of two is dead: a failure", (code, diagnosis["findings"][0]["id"]), (3, "serve.replica_down"))
    code, _, errors = doctor("ftp://x")
    equal("no URL: exit code", code, 2)


def many_at_once_is_well():
    with Server(model, "--threads", 1, "--max-num-seqs", 16) as s, load(*[asks(s, "one two three", 100)] * 6):
        finished(s, 20)
        is_well("six streams at once", url(s))


def tiny_pool():
    s, _ = server_with_pages(model, 80, "--threads", 1, "--max-model-len", 512)
    with s, load(*[asks(s, "one two", 400)] * 6):
        finished(s, 12)
        finds("tiny pool", "serve.kv_preemption", url(s))


def one_seat():
    with Server(model, "--threads", 1, "--max-num-seqs", 1) as s, load(*[asks(s, "one two", 1500)] * 5):
        finished(s, 10)
        finds("one seat", "serve.seats", url(s))


def long_prompts():
    words = "one two three four five six seven eight nine zero " * 300
    with Server(model, "--threads", 1, "--max-batch-tokens", 4096) as s:
        long = asks(s, words, 1, cache_prompt=False)
        begin = time.monotonic()
        long()
        print(f"a long prompt takes {time.monotonic() - begin:.2f} s")
        with load(*[asks(s, "one two", 100)] * 2, long):
            finished(s, 20)
            finds("long prompts", "serve.prefill_stalls", url(s))


def clients_that_go():
    with Server(model, "--threads", 1) as s:

        def goes():
            connection = Connection(s.port)
            connection.send("POST", COMPLETIONS, {"prompt": "one two", "max_tokens": 5000, "ignore_eos": True, "stream": True})
            next(iter(Stream(connection)))
            connection.reset()

        with load(goes, goes, asks(s, "five six", 300)):
            finished(s, 20)
            finds("clients that go", "serve.disconnects", url(s))


def bad_requests():
    with Server(model, "--threads", 1) as s:
        def wrong():
            s.post(COMPLETIONS, {"prompt": "one", "max_tokens": -1})
            time.sleep(0.05)

        def right():
            s.completion("one two", max_tokens=10)
            time.sleep(0.02)

        with load(wrong, right):
            finished(s, 20)
            finds("bad requests", "serve.bad_requests", url(s))


def cache_off():
    shared = "one two three four five six seven eight nine zero " * 40
    with scratch_folder() as out:
        with Server(model, "--threads", 1, "--prefix-cache", "false", "--out", out, "--log-steps", "--log-spans") as s:
            with load(*[asks(s, shared + "one", 10), asks(s, shared + "two", 10)]):
                finished(s, 20)
                code, diagnosis, _ = doctor(url(s))
                equal("cache off: the counters alone give no more than an info", (code, serious(diagnosis)), (0, []))
        finds("cache off, from its records", "serve.cache_off", out)
    with scratch_folder() as out:
        with Server(model, "--threads", 1, "--out", out, "--log-steps", "--log-spans") as s:
            with load(*[asks(s, shared + "one", 10), asks(s, shared + "two", 10)]):
                finished(s, 20)
        is_well("cache on, from its records", out)


def imbalance():
    with Server(model, "--threads", 1) as a, Server(model, "--threads", 1) as b:
        with load(*[asks(a, "one two", 300)] * 6):
            finished(a, 12)
            finds("imbalance", "serve.imbalance", url(a), url(b))
        with load(*[asks(a, "one two", 300)] * 3, *[asks(b, "one two", 300)] * 3):
            finished(b, 12)
            is_well("balance", url(a), url(b))


with scratch_folder() as folder:
    model = words_model(folder)
    main(well_and_dead, many_at_once_is_well, tiny_pool, one_seat, long_prompts, clients_that_go, bad_requests, cache_off,
         imbalance)
