#!/usr/bin/env -S python3 -B
"""A rank that hangs or dies: /health tells and names it, requests under way get an error instead of silence."""

import os
import signal
import time

from serve_lib import Server, all_at_once, checks, main, scratch_folder, wait_for
from serve_models import words_model

equal, ok, holds = checks.equal, checks.ok, checks.holds
COMPLETIONS = "/v1/completions"
GOING = {"prompt": "one two", "max_tokens": 8000, "ignore_eos": True}


def begun(server, n):
    """n streams whose first event is there."""
    streams = [server.stream(COMPLETIONS, GOING) for _ in range(n)]
    iterators = [iter(s) for s in streams]
    for i in iterators:
        next(i)
    return streams, iterators


def ends(iterators, timeout_s):
    def rest(iterator):
        try:
            for _ in iterator:
                pass
            return "ended"
        except OSError as e:
            return f"connection lost: {e}"
    return all_at_once([lambda i=i: rest(i) for i in iterators], timeout_s)


def healthy():
    with Server(model, "--threads", 1, "--tp", 2, ranks=2) as s:
        ok("two ranks serve", s.works())
        equal("two ranks", len(s.rank_pids()), 2)
        replies = all_at_once([lambda: s.completion("one two", max_tokens=20) for _ in range(8)])
        ok("8 at once", len({r["choices"][0]["text"] for r in replies}) == 1, replies)


def hung_rank():
    with Server(model, "--threads", 1, "--tp", 2, "--comm-timeout", 3, "--heartbeat-timeout", 1, "--drain-timeout", 5,
                ranks=2) as s:
        streams, iterators = begun(s, 2)
        os.kill(s.rank_pids()[1], signal.SIGSTOP)
        begin = time.monotonic()
        health = wait_for(lambda: (r := s.get("/health")).status == 503 and r, "/health to say 503", 15)
        took = time.monotonic() - begin
        ok("a rank that hangs: /health is 503 within the heartbeat's time-out", took < 5, (took, health))
        results = ends(iterators, 15)
        equal("requests under way end", results, ["ended", "ended"])
        ok("with an error event", all(x.error and not x.done for x in streams), [x.lines[-1:] for x in streams])
        holds("which names the rank", str(streams[0].error), "rank 1")
        message = wait_for(lambda: "rank 1" in s.get("/health").text and s.get("/health").text, "/health to name the rank", 10)
        holds("as /health does", message, "failed")
        ok("new requests get 503", s.post(COMPLETIONS, GOING).status == 503)
        ok("then it ends, not with 0", s.exit_code(30) != 0)


def dead_rank():
    with Server(model, "--threads", 1, "--tp", 2, "--comm-timeout", 5, "--drain-timeout", 5, ranks=2) as s:
        streams, iterators = begun(s, 2)
        os.kill(s.rank_pids()[1], signal.SIGKILL)
        begin = time.monotonic()
        results = ends(iterators, 30)
        ok("a rank that is killed: requests under way end", all(r == "ended" or str(r).startswith("connection lost") for r in results),
           results)
        ok("not as if they were whole", not any(x.done for x in streams), [x.lines[-1:] for x in streams])
        ok("the job ends, not with 0", s.exit_code(30) != 0)
        ok("soon", time.monotonic() - begin < 30)
        holds("and what it prints names the rank", s.log(), "rank 1")


def stalled_rank_zero():
    """One rank whose engine cannot go on is not healthy either: a stopped process answers nothing, after it goes on all is
    well."""
    with Server(model, "--threads", 1) as s:
        s.signal(signal.SIGSTOP)
        time.sleep(1)
        s.signal(signal.SIGCONT)
        ok("after a pause it serves", s.works())


with scratch_folder() as folder:
    model = words_model(folder)
    main(healthy, hung_rank, dead_rank, stalled_rank_zero)
