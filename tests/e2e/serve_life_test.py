#!/usr/bin/env -S python3 -B
"""Requests that end otherwise than asked, and servers that do: clients that go, full queues, time-outs, shutdown,
silence."""

import signal
import threading
import time

from serve_http import Connection, Stream
from serve_lib import Missed, Server, all_at_once, checks, main, scratch_folder, wait_for
from serve_models import words_model

equal, ok, holds = checks.equal, checks.ok, checks.holds
COMPLETIONS = "/v1/completions"
LONG = "one two three four five six seven eight nine zero " * 300  # thousands of tokens


def going(n, **fields):
    """A request that goes on for n tokens."""
    return {"prompt": "one two", "max_tokens": n, "ignore_eos": True, "return_token_ids": True, **fields}


class Neighbour:
    """A stream that is read on a thread of its own."""

    def __init__(self, server, n):
        self.gathered = None
        self.thread = threading.Thread(target=self._run, args=(server, n), daemon=True)
        self.thread.start()

    def _run(self, server, n):
        self.gathered = server.gather(COMPLETIONS, going(n))

    def ids(self):
        self.thread.join(120)
        if self.gathered is None:
            raise Missed("the neighbour's stream did not end")
        return self.gathered.ids[0]


def pages_free(server):
    m = server.metrics()
    return m["rankwright_kv_free_pages"] + m["rankwright_kv_cached_pages"]


def gone_clients():
    n = 2500
    with Server(model, "--deterministic", "--threads", 1, "--max-num-seqs", 2, "--max-batch-tokens", 16) as s:
        alone = s.ids(**going(n))
        s.wait_idle()
        free = pages_free(s)

        def beside(name, n_neighbours, body, load, after, n_events=0):
            """Resets the connection of a request beside neighbours as soon as the load says so, or n events came."""
            neighbours = [Neighbour(s, n) for _ in range(n_neighbours)]
            wait_for(lambda: s.load() == (n_neighbours, 0), "the neighbours to run")
            connection = Connection(s.port)
            connection.send("POST", COMPLETIONS, {"temperature": 0, **body})
            if n_events > 0:
                events = iter(Stream(connection))
                for _ in range(n_events):
                    next(events)
            wait_for(lambda: s.load() == load, f"{name}: load {load}")
            connection.reset()
            begin = time.monotonic()
            wait_for(lambda: s.load() == after, f"{name}: load {after}", 5)
            ok(f"{name}: gone at once", time.monotonic() - begin < 1, time.monotonic() - begin)
            ok("while the neighbours went on", all(x.gathered is None for x in neighbours))
            ok("whose streams are the same", all(x.ids() == alone for x in neighbours))
            s.wait_idle()
            equal("and the pages are back", pages_free(s), free)

        beside("mid-decode, streaming", 1, going(5000, stream=True), (2, 0), (1, 0), n_events=3)
        beside("mid-decode, not streaming", 1, going(5000), (2, 0), (1, 0))
        beside("mid-prefill", 1, {"prompt": LONG, "max_tokens": 5, "cache_prompt": False, "stream": True}, (2, 0), (1, 0))
        beside("queued", 2, going(50, stream=True), (2, 1), (2, 0))
        ok("cancellations are counted", 'abort' in s.get("/metrics").text, s.get("/metrics").text)


def full_queue():
    with Server(model, "--threads", 1, "--max-num-seqs", 1, "--max-queue", 3, "--deterministic") as s:
        short = s.ids(**going(5))
        running = Neighbour(s, 3000)
        wait_for(lambda: s.load() == (1, 0), "one to run")
        waiting = []
        for i in range(3):
            waiting.append(threading.Thread(target=lambda: results.append(s.ids(**going(5))), daemon=True))
            waiting[-1].start()
            wait_for(lambda i=i: s.load() == (1, i + 1), f"{i + 1} to wait")
        refused = [s.post(COMPLETIONS, going(5)) for _ in range(5)]
        ok("what comes beyond --max-queue is told 429", all(r.status == 429 for r in refused), refused)
        ok("with Retry-After", all(int(r.headers["retry-after"]) >= 1 for r in refused), refused[0].headers)
        ok("as an error that clients try again after", refused[0].error()["type"] == "rate_limit_error", refused[0])
        ok("at once", min(r.took_s for r in refused) < 0.02, [r.took_s for r in refused])
        ok("a request of too many choices at once too", s.post(COMPLETIONS, {**going(5), "n": 9}).status == 429)
        for t in waiting:
            t.join(60)
        equal("those accepted are answered as ever", results, [short] * 3)
        equal("and the one that ran", len(running.ids()), 3000)
        ok("refusals are counted", "queue_full" in s.get("/metrics").text)
        ok("then there is room again", s.works())


results = []


def slow_admission():
    prompt = LONG[:len(LONG) // 3]
    body = {"prompt": prompt, "max_tokens": 2, "cache_prompt": False}
    with Server(model, "--threads", 1) as s:
        one_s = min(s.post(COMPLETIONS, body).took_s for _ in range(3))
    with Server(model, "--threads", 1, "--slo-ttft-ms", 5000 * one_s) as s:
        for _ in range(3):
            s.post(COMPLETIONS, body)  # something to measure
        n = 30
        replies = all_at_once([lambda: s.post(COMPLETIONS, body)] * n)
        refused = [r for r in replies if r.status == 429]
        ok("what would wait longer than --slo-ttft-ms is refused, with Retry-After", 0 < len(refused) < n and
           all(r.error()["code"] == "slo_unreachable" and int(r.headers["retry-after"]) >= 1 for r in refused), replies)
        ok("what is let in is served", all(r.status in (200, 429) for r in replies), replies)
        s.wait_idle()
        ok("short ones are served", s.works())
    with Server(model, "--threads", 1, "--slo-ttft-ms", 5000) as s:
        s.completion("one", max_tokens=1)  # the first step of a process is slow and must not count as the rule
        reply = s.post(COMPLETIONS, {"prompt": LONG, "max_tokens": 1})
        ok("a slow first step does not shut others out", reply.status == 200, reply)


def request_time_out():
    with Server(model, "--threads", 1) as s:
        reply = s.post(COMPLETIONS, going(7000, timeout=0.3))
        ok("a request's own time-out: 408, not to be tried again", reply.status == 408 and
           reply.headers.get("x-should-retry") == "false" and reply.error()["code"] == "timeout", reply)
        g = s.gather(COMPLETIONS, going(7000, timeout=0.3))
        ok("of a stream: an error event, no [DONE]", g.stream.error and not g.stream.done, g.stream.lines[-1:])
        wait_for(lambda: s.load() == (0, 0), "both to be cancelled", 5)
        ok("and the server goes on", s.works())


def drain():
    with Server(model, "--threads", 1, "--drain-timeout", 60) as s:
        stream = s.stream(COMPLETIONS, going(8000))
        iterator = iter(stream)
        events = [next(iterator)]
        s.signal(signal.SIGTERM)
        wait_for(lambda: s.get("/health").status == 503, "/health to say 503", 2)
        equal("SIGTERM: /health is 503", s.get("/health").json()["status"], "draining")
        reply = s.post(COMPLETIONS, going(1))
        ok("new requests get 503", reply.status == 503 and reply.error()["type"] == "unavailable_error", reply)
        events += list(iterator)
        ok("what runs is finished", stream.done and sum(len(c["token_ids"]) for e in events for c in e["choices"]) == 8000)
        equal("exit 0", s.exit_code(), 0)
    with Server(model, "--threads", 1, "--drain-timeout", 0.5) as s:
        stream = s.stream(COMPLETIONS, going(8000))
        iterator = iter(stream)
        next(iterator)
        s.signal(signal.SIGTERM)
        begin = time.monotonic()
        list(iterator)
        ok("--drain-timeout passed: an error event, no [DONE]", stream.error and not stream.done and
           stream.error["type"] == "unavailable_error", stream.lines[-1:])
        equal("exit 1", s.exit_code(), 1)
        ok("soon", time.monotonic() - begin < 10)
    with Server(model, "--threads", 1, "--drain-timeout", 60) as s:
        stream = s.stream(COMPLETIONS, going(8000))
        iterator = iter(stream)
        next(iterator)
        s.signal(signal.SIGTERM)
        wait_for(lambda: s.get("/health").status == 503, "draining", 2)
        begin = time.monotonic()
        s.signal(signal.SIGTERM)
        list(iterator)
        equal("a second SIGTERM: exit 1", s.exit_code(10), 1)
        ok("at once, with an error event", stream.error and time.monotonic() - begin < 5, stream.lines[-1:])


def keep_alive():
    for flags, wanted in ((("--sse-keepalive", 0.1), True), ((), False)):
        with Server(model, "--threads", 1, "--max-num-seqs", 1, *flags) as s:
            first = Neighbour(s, 8000)  # for longer than a comment takes, on fast machines too
            wait_for(lambda: s.load()[0] == 1, "the first to run")
            stream = s.stream(COMPLETIONS, going(3)) if wanted else None
            if stream is None:
                g = s.gather(COMPLETIONS, going(3))
                equal("without --sse-keepalive: no comments", g.stream.comments, [])
                first.ids()
                continue
            begin = time.monotonic()
            list(stream)
            times = [begin, *(t for t, _ in stream.comments), stream.times[0]]
            gaps = [b - a for a, b in zip(times, times[1:])]
            ok("--sse-keepalive: a comment line as often as it says", len(stream.comments) >= 1 and max(gaps) < 1.5,
               (len(stream.comments), gaps))
            ok("a comment, then the events as ever", stream.done and all(c.startswith(":") for _, c in stream.comments))
            first.ids()


with scratch_folder() as folder:
    model = words_model(folder)
    main(gone_clients, full_queue, slow_admission, request_time_out, drain, keep_alive)
