"""Servers under load with a fault planted in each. A case answers with what the doctor is to be asked about: the address of a
server that is still up and under load, or the folder of one that has ended."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.parse

from doctor_corpus_lib import CORES, Case, NotPlanted, wait_for
from doctor_corpus_train import COMM, DATA, PARAMETERS, RESOURCES


def served_model(ctx):
    """A run whose model takes 4096 tokens; its answers mean nothing, their cost does."""
    def make():
        config = ctx.shared.model("long", vocab_size=257, max_position_embeddings=4096, hidden_size=192, intermediate_size=512)
        run = ctx.train(ranks=1, model=config, steps=2, micro_batch=2, seq_len=64, out="served")
        kept = os.path.join(ctx.shared.dir, "served")
        os.rename(run, kept)
        return kept
    return ctx.shared.once("served", make)


class Server:
    def __init__(self, ctx, *flags, ranks=0, name="server"):
        self.ctx, self.log, self.out = ctx, ctx.path(name + ".log"), ctx.path(name)
        command = [ctx.shared.tool("dserve"), "--model", served_model(ctx), "--port", "0", "--out", self.out, "--log-spans", "--threads", 1, *flags]
        if ranks:
            command = ["mpirun", "-n", ranks, *command]
        self.process = ctx.popen(command, self.log)
        self.url = wait_for(lambda: self._find(r"(http://[\w.]+:\d+)"), f"the server's address: {self.text()[-500:]}", 30 * ctx.slow).group(1)
        wait_for(self._ready, "/health", 30 * ctx.slow)

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def _find(self, pattern):
        if self.process.poll() is not None:
            raise NotPlanted(f"the server ended with {self.process.returncode}: {self.text()[-500:]}")
        return re.search(pattern, self.text())

    def _ready(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.get("/health") is not None

    def get(self, path):
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.url).netloc, timeout=10)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.read().decode() if reply.status == 200 else None
        finally:
            connection.close()

    def end(self):
        """SIGTERM, and the folder of its records."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(40 * self.ctx.slow)
        except subprocess.TimeoutExpired:
            raise NotPlanted("the server did not end") from None
        return self.out


class Load:
    """Closed loops of clients, each on its thread: prompt(client, round) and tokens() of an answer; a client leaves a stream
    after `leave()` tokens (None: stays) and waits `pause` seconds between requests."""

    def __init__(self, ctx, url, clients, prompt, tokens, pause=0.0, leave=lambda: None):
        self.ctx, self.netloc = ctx, urllib.parse.urlsplit(url).netloc
        self.prompt, self.tokens, self.pause, self.leave = prompt, tokens, pause, leave
        self.stop, self.done, self.refused, self.left, self.broken = threading.Event(), 0, 0, 0, 0
        self.threads = [threading.Thread(target=self._client, args=(i,), daemon=True) for i in range(clients)]
        for t in self.threads:
            t.start()

    def _client(self, i):
        sent = 0
        while not self.stop.is_set():
            try:
                self._request(self.prompt(i, sent))
            except (OSError, http.client.HTTPException):
                self.broken += 1
                self.stop.wait(0.1)
            sent += 1
            self.stop.wait(self.pause)

    def _request(self, prompt):
        connection = http.client.HTTPConnection(self.netloc, timeout=60)
        try:
            body = {"prompt": prompt, "max_tokens": self.tokens(), "ignore_eos": True, "stream": True}
            connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
            reply = connection.getresponse()
            if reply.status != 200:
                reply.read()
                self.refused += 1
                self.stop.wait(0.02)
                return
            left, seen = self.leave(), 0
            for line in reply:
                seen += line.startswith(b"data:")
                if left is not None and seen > left:
                    self.left += 1
                    return
                if self.stop.is_set():
                    return
            self.done += 1
        finally:
            connection.close()

    def run(self, seconds, answers=1):
        """For so long, and until so many are answered."""
        time.sleep(seconds)
        wait_for(lambda: self.done + self.left >= answers, f"{answers} answers, found {self.done}", 30 * self.ctx.slow)
        self.ctx.note(f"so far {self.done} answered, {self.refused} refused, {self.left} left, {self.broken} broken")

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join(30)


@contextlib.contextmanager
def loaded(ctx, server, seconds, clients, prompt, tokens, answers=1, **options):
    """The server's address while the load is on."""
    load = Load(ctx, server.url, clients, prompt, tokens, **options)
    try:
        load.run(seconds, answers)
        yield server.url
    finally:
        load.end()


def text_at(ctx, begin, size):
    return ctx.shared.text[begin:begin + size].decode("ascii", "replace")


def drawn_text(ctx, size):
    """A prompt maker: a different piece of text for each request."""
    return lambda i, n: text_at(ctx, (i * 7919 + n * 104729) % 1_000_000, size)


def pages(ctx, server_flags, count):
    """--memory for so many pages beside weights and run time, as a first start tells them."""
    def make():
        first = Server(ctx, *server_flags, name="measure")
        line = first._find(r"memory: weights ([\d.]+) MiB, cache ([\d.]+) (\w+) \((\d+) pages\), run time ([\d.]+) MiB")
        first.end()
        if not line:
            raise NotPlanted(f"expected a line about memory, found {first.text()[-300:]}")
        weights, cache, unit, number, run_time = line.groups()
        page = float(cache) * {"MiB": 1 << 20, "GiB": 1 << 30, "KiB": 1 << 10}[unit] / int(number)
        return (float(weights) + float(run_time)) * (1 << 20), page
    base, page = ctx.shared.once("pages " + " ".join(map(str, server_flags)), make)
    return int(base + page * count + 60_000)


# ---- cases -------------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def tiny_kv_pool(ctx):
    """The cache holds two sequences or three; many are let in together."""
    flags = ["--max-model-len", 640, "--max-num-seqs", 16, "--no-prefix-cache"]
    count, clients = ctx.rng.randint(60, 110), ctx.rng.randint(8, 14)
    ctx.note(f"{count} pages of 16 tokens for {clients} streams of up to 600 tokens")
    with loaded(ctx, Server(ctx, *flags, "--memory", pages(ctx, flags, count)), 3, clients, drawn_text(ctx, 100), lambda: ctx.rng.randint(200, 500)) as url:
        yield url


@contextlib.contextmanager
def one_at_a_time(ctx):
    clients = ctx.rng.randint(6, 14)
    ctx.note(f"--max-num-seqs 1 for {clients} clients")
    with loaded(ctx, Server(ctx, "--max-num-seqs", 1), 3, clients, drawn_text(ctx, 60), lambda: ctx.rng.randint(40, 120)) as url:
        yield url


@contextlib.contextmanager
def one_at_a_time_records(ctx):
    """The same from what the server wrote."""
    clients = ctx.rng.randint(6, 14)
    ctx.note(f"--max-num-seqs 1 for {clients} clients")
    server = Server(ctx, "--max-num-seqs", 1)
    with loaded(ctx, server, 6, clients, drawn_text(ctx, 60), lambda: ctx.rng.randint(40, 120)):
        pass
    yield server.end()


@contextlib.contextmanager
def long_prefills(ctx):
    """Running streams stand still while a long prompt is computed whole."""
    size, every = ctx.rng.randint(2500, 3600), ctx.between(0.2, 0.6)
    ctx.note(f"a prompt of {size} tokens every {every:.1f} s beside 4 streams, --max-batch-tokens 4096")
    server = Server(ctx, "--max-batch-tokens", 4096, "--no-prefix-cache")
    long = Load(ctx, server.url, 1, drawn_text(ctx, size), lambda: 4, pause=every)
    try:
        with loaded(ctx, server, 3, 4, drawn_text(ctx, 60), lambda: 400) as url:
            yield url
    finally:
        long.end()


@contextlib.contextmanager
def clients_leave(ctx):
    share = 0.4 + 0.5 * ctx.rng.random()
    ctx.note(f"{share:.0%} of the clients leave within 30 tokens of 200")
    leave = lambda: ctx.rng.randint(1, 30) if ctx.rng.random() < share else None  # noqa: E731
    with loaded(ctx, Server(ctx), 3, 4, drawn_text(ctx, 60), lambda: 200, pause=0.05, leave=leave) as url:
        yield url


@contextlib.contextmanager
def prefix_cache_off(ctx):
    """All prompts begin alike, and each is computed from its start."""
    shared, clients = ctx.rng.randint(1000, 2500), ctx.rng.randint(2, 4)
    ctx.note(f"--no-prefix-cache, {shared} tokens shared by {clients} clients")
    begin = text_at(ctx, 5000, shared)
    prompt = lambda i, n: begin + text_at(ctx, (i * 7919 + n * 104729) % 1_000_000, 40)  # noqa: E731
    with loaded(ctx, Server(ctx, "--no-prefix-cache"), 3, clients, prompt, lambda: 12, pause=0.1, answers=2 * clients) as url:
        yield url


@contextlib.contextmanager
def cache_thrash(ctx):
    """Long prompts come back again and again, but the cache holds fewer than there are."""
    size, prompts = ctx.rng.randint(800, 1200), ctx.rng.randint(8, 14)
    flags = ["--max-model-len", 2048, "--max-num-seqs", 4]
    count = max(140, int(prompts * size / 16 / ctx.between(2, 3)))
    ctx.note(f"{prompts} prompts of {size} tokens in turn, {count} pages of 16")
    prompt = lambda i, n: text_at(ctx, 20_000 * (n % prompts), size) + f" {n}"  # noqa: E731
    with loaded(ctx, Server(ctx, *flags, "--memory", pages(ctx, flags, count)), 4, 1, prompt, lambda: 8, pause=0.02, answers=2 * prompts) as url:
        yield url


@contextlib.contextmanager
def unbalanced_replicas(ctx):
    """Two servers; nearly all requests go to one."""
    busy, idle = ctx.rng.randint(6, 10), ctx.rng.randint(0, 1)
    ctx.note(f"{busy} clients on one server, {idle} on the other")
    servers = [Server(ctx, "--max-num-seqs", 8, name=n) for n in ("first", "second")]
    ctx.rng.shuffle(servers)
    other = Load(ctx, servers[1].url, idle, drawn_text(ctx, 60), lambda: 20, pause=0.5)
    try:
        with loaded(ctx, servers[0], 3, busy, drawn_text(ctx, 60), lambda: ctx.rng.randint(40, 120)):
            yield [s.url for s in servers]
    finally:
        other.end()


@contextlib.contextmanager
def cpu_hog_server(ctx):
    each = ctx.rng.randint(2, 4)
    ctx.note(f"{each} busy loops a core beside the server")
    server = Server(ctx)
    ctx.hog(each * CORES)
    with loaded(ctx, server, 3, 3, drawn_text(ctx, 60), lambda: 100, pause=0.1) as url:
        yield url


@contextlib.contextmanager
def queue_full(ctx):
    queue, seqs = ctx.rng.randint(1, 4), ctx.rng.randint(1, 2)
    clients = queue + seqs + ctx.rng.randint(4, 10)
    ctx.note(f"--max-queue {queue}, --max-num-seqs {seqs}, {clients} clients")
    with loaded(ctx, Server(ctx, "--max-queue", queue, "--max-num-seqs", seqs), 3, clients, drawn_text(ctx, 60), lambda: 100, pause=0.1) as url:
        yield url


@contextlib.contextmanager
def hung_server_rank(ctx):
    """One of two tensor-parallel ranks is held for good."""
    server = Server(ctx, "--comm-timeout", 3, ranks=2)
    load = Load(ctx, server.url, 2, drawn_text(ctx, 60), lambda: 100)
    try:
        time.sleep(1.5)
        ranks = {}
        from doctor_corpus_lib import _read, marked
        for p in marked(ctx.mark):
            rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", _read(f"/proc/{p}/environ"))
            if rank and _read(f"/proc/{p}/comm").strip() == b"dserve":
                ranks[int(rank.group(1))] = p
        os.kill(ranks[1], signal.SIGSTOP)
        ctx.note("rank 1 of 2 held for good")
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(30 * ctx.slow)
    finally:
        load.end()
    yield server.out


@contextlib.contextmanager
def idle_server(ctx):
    yield Server(ctx).url


@contextlib.contextmanager
def lightly_loaded(ctx):
    clients = ctx.rng.randint(1, 2)
    ctx.note(f"{clients} clients, a request every half second")
    with loaded(ctx, Server(ctx), 3, clients, drawn_text(ctx, 80), lambda: ctx.rng.randint(10, 30), pause=0.5) as url:
        yield url


@contextlib.contextmanager
def light_records(ctx):
    """What a lightly loaded server wrote, after its end."""
    server = Server(ctx)
    with loaded(ctx, server, 5, 1, drawn_text(ctx, 80), lambda: ctx.rng.randint(10, 30), pause=0.4):
        pass
    yield server.end()


ANY = f"{DATA}|{COMM}|{RESOURCES}|{PARAMETERS}"
CASES = [
    Case("tiny_kv_pool", "serve", tiny_kv_pool, ANY, r"preempt|kv|pages|pool|cache (is )?(full|exhaust)"),
    Case("one_at_a_time", "serve", one_at_a_time, ANY, r"queue|wait|max.num.seqs|slots"),
    Case("one_at_a_time_records", "serve", one_at_a_time_records, ANY, r"queue|wait|max.num.seqs|slots"),
    Case("long_prefills", "serve", long_prefills, ANY, r"prefill|long prompt|chunk"),
    Case("clients_leave", "serve", clients_leave, ANY, r"disconnect|cancel|client|abort|went away|left"),
    Case("prefix_cache_off", "serve", prefix_cache_off, ANY, r"prefix|prefill|shared"),
    Case("cache_thrash", "serve", cache_thrash, ANY, r"prefix|hit|evict|thrash|stampede"),
    Case("unbalanced_replicas", "serve", unbalanced_replicas, ANY, r"balanc|replica|uneven|skew"),
    Case("cpu_hog_server", "serve", cpu_hog_server, RESOURCES, r"cpu|cores?\b|busy|other process|contend|steal|load", cpu=True),
    Case("queue_full", "serve", queue_full, ANY, r"429|reject|refus|queue|turned away"),
    Case("hung_server_rank", "serve", hung_server_rank, ANY, r"watchdog|time.?out|timed out|arriv|hang|hung|stuck|rank"),
    Case("idle_server", "serve", idle_server, healthy=True),
    Case("lightly_loaded", "serve", lightly_loaded, healthy=True),
    Case("light_records", "serve", light_records, healthy=True),
]
