"""A cheap load client for OpenAI-compatible completions: one thread, one epoll, bare sockets, a connection a request. Times are
seconds of time.monotonic(); a request's latencies count from when it was meant to be sent."""

import collections
import json
import selectors
import socket
import time
import urllib.parse

VOID_ABOVE = 0.8  # of a core: then the client itself may be what is measured


class Request:
    """One completion and what came of it."""

    def __init__(self, body, tag="", due=None):
        self.tag, self.due = tag, due  # due: seconds after the start; None: when a place is free
        self.stream = bool(body.get("stream"))
        self.body = json.dumps(body).encode()
        self.intended = self.sent = self.end = None
        self.times, self.counts = [], []  # of events that brought tokens, and how many
        self.usage, self.timings, self.error = {}, None, None
        self.cut = False  # closed by us before its end

    @property
    def tokens(self):
        return self.usage.get("completion_tokens", sum(self.counts))

    def gaps(self):
        """(when, seconds a token) of every token after the first event."""
        for before, at, n in zip(self.times, self.times[1:], self.counts[1:]):
            for _ in range(n):
                yield at, (at - before) / n


class _Exchange:
    """A request on its socket: sends, undoes HTTP's chunks, splits events."""

    def __init__(self, client, request, now, intended):
        self.client, self.request = client, request
        request.intended = intended
        self.out = client.head % len(request.body) + request.body
        self.data, self.body, self.left, self.status, self.chunked, self.length = b"", b"", 0, None, False, None
        self.deadline = now + client.timeout_s
        self.sock = socket.socket(client.family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.connect_ex(client.address)
        client.selector.register(self.sock, selectors.EVENT_WRITE, self)

    def send(self):
        if self.request.sent is None:
            self.request.sent = time.monotonic()
        self.out = self.out[self.sock.send(self.out):]
        if not self.out:
            self.client.selector.modify(self.sock, selectors.EVENT_READ, self)

    def receive(self):
        """True when the reply is complete."""
        data = self.sock.recv(1 << 18)
        now = time.monotonic()
        if not data:
            if self.status == 200 and not self.chunked and self.length is None and not self.request.stream:
                return self.whole(now)
            raise ConnectionError(f"the connection ended early, status {self.status}, {len(self.request.times)} events")
        self.data += data
        if self.status is None and not self.head():
            return False
        if self.chunked:
            ended = self.unchunk()
        else:
            self.body, self.data = self.body + self.data, b""
            ended = self.length is not None and len(self.body) >= self.length
        if self.request.stream and self.status == 200:
            return self.events(now)
        return ended and self.whole(now)

    def head(self):
        end = self.data.find(b"\r\n\r\n")
        if end < 0:
            return False
        lines, self.data = self.data[:end].decode("latin-1").split("\r\n"), self.data[end + 4:]
        self.status = int(lines[0].split()[1])
        headers = {k.strip().lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
        self.chunked = "chunked" in headers.get("transfer-encoding", "")
        self.length = int(headers["content-length"]) if "content-length" in headers else None
        return True

    def unchunk(self):
        """Moves what is there of chunks to the body; True after the last one."""
        while True:
            if self.left == 0:
                end = self.data.find(b"\r\n")
                if end < 0:
                    return False
                self.left = int(self.data[:end].split(b";")[0], 16) + 2  # its own line end too
                self.data = self.data[end + 2:]
                if self.left == 2:
                    return True
            if len(self.data) < self.left:
                return False
            self.body += self.data[:self.left - 2]
            self.data, self.left = self.data[self.left:], 0

    def events(self, now):
        *whole, self.body = self.body.replace(b"\r\n", b"\n").split(b"\n\n")
        return any([self.event(e, now) for e in whole if e.startswith(b"data:")])

    def event(self, event, now):
        data = event[5:].strip()
        if data == b"[DONE]":
            return True
        event, r = json.loads(data), self.request
        if "error" in event:
            raise ConnectionError(f"an error event: {event['error']}")
        before = r.usage.get("completion_tokens")
        if event.get("usage"):
            r.usage = event["usage"]
        r.timings = event.get("timings", r.timings)
        choices = event.get("choices")
        if not choices:
            return False
        if event.get("usage") and (before is not None or not r.times):  # usage in every event
            n = r.usage["completion_tokens"] - (before or 0)
        else:
            n = 1 if choices[0].get("text") else 0
        if n > 0:
            r.times.append(now)
            r.counts.append(n)
        return False

    def whole(self, now):
        reply = json.loads(self.body)
        if self.status != 200:
            raise ConnectionError(f"status {self.status}: {json.dumps(reply)[:300]}")
        self.request.usage, self.request.timings = reply.get("usage", {}), reply.get("timings")
        return True


class Client:
    def __init__(self, url, api_key="", timeout_s=600):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url}: expected http://HOST:PORT")
        path = parts.path.rstrip("/").removesuffix("/v1")
        info = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)[0]
        self.family, self.address, self.timeout_s = info[0], info[4], timeout_s
        key = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
        self.head = (f"POST {path}/v1/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n{key}"
                     "Connection: close\r\nContent-Length: ").encode().replace(b"%", b"%%") + b"%d\r\n\r\n"

    def run(self, requests, concurrency=0, until=None):
        """Sends them: each at its due time, and those without one as places get free. When `until` (a request) has ended, those
        still running are cut. Returns {"wall_s", "cpu_s"}."""
        self.selector = selectors.DefaultSelector()
        waiting = collections.deque(r for r in requests if r.due is None)
        due = collections.deque(sorted((r for r in requests if r.due is not None), key=lambda r: r.due))
        begin, cpu = time.monotonic(), time.process_time()
        live, free = set(), [begin] * concurrency
        while True:
            now = time.monotonic()
            while due and begin + due[0].due <= now:
                r = due.popleft()
                live.add(_Exchange(self, r, now, begin + r.due))
            while free and waiting:
                live.add(_Exchange(self, waiting.popleft(), now, free.pop()))
            if until is not None and until.end is not None:
                for x in list(live):
                    x.request.cut = True
                    self.close(x, live)
                break
            if not live and not due:
                break
            wait = 1.0 if not due else min(1.0, begin + due[0].due - now)
            for key, _ in self.selector.select(max(0.0, wait)):
                x = key.data
                if self.step(x):
                    self.close(x, live)
                    if x.request.due is None:
                        free.append(x.request.end)
            for x in [x for x in live if x.deadline < now]:
                x.request.error = f"no end after {self.timeout_s} s"
                self.close(x, live)
                if x.request.due is None:
                    free.append(x.request.end)
        self.selector.close()
        return {"wall_s": time.monotonic() - begin, "cpu_s": time.process_time() - cpu}

    def step(self, x):
        """True when it is over, well or not."""
        try:
            if x.out:
                x.send()
                return False
            return x.receive()
        except BlockingIOError:
            return False
        except (OSError, ValueError, KeyError, IndexError) as e:
            x.request.error = f"{type(e).__name__}: {e}"
            return True

    def close(self, x, live):
        x.request.end = time.monotonic()
        self.selector.unregister(x.sock)
        x.sock.close()
        live.discard(x)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def spread_ms(values):
    """Milliseconds: mean and percentiles."""
    if not values:
        return None
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {"mean": round(1e3 * sum(values) / len(values), 3), **{k: round(1e3 * percentile(values, s), 3) for k, s in shares.items()},
            "max": round(1e3 * max(values), 3), "n": len(values)}


def summary(requests, took):
    """What a run came to. ITL: gaps between events over their tokens, one entry a token; TPOT: a request's mean after its first
    event; TTFT and E2E: from the intended time of sending, connecting included."""
    good = [r for r in requests if r.error is None and r.end is not None and not r.cut]
    errors = collections.Counter(r.error for r in requests if r.error is not None)
    begin, end = min(r.intended for r in requests), max(r.end for r in requests)
    tokens = sum(r.tokens for r in good)
    late = [r.sent - r.intended for r in requests if r.sent is not None]
    tpot = [(r.times[-1] - r.times[0]) / sum(r.counts[1:]) for r in good if len(r.times) > 1]
    share = took["cpu_s"] / max(took["wall_s"], 1e-9)
    return {
        "requests": len(requests), "errors": sum(errors.values()), "error_kinds": dict(errors.most_common(3)),
        "prompt_tokens": sum(r.usage.get("prompt_tokens", 0) for r in good),
        "cached_tokens": sum((r.usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) for r in good),
        "output_tokens": tokens, "duration_s": round(end - begin, 4), "output_tokens_per_s": round(tokens / max(end - begin, 1e-9), 2),
        "requests_per_s": round(len(good) / max(end - begin, 1e-9), 3),
        "ttft_ms": spread_ms([r.times[0] - r.intended for r in good if r.times]),
        "itl_ms": spread_ms([gap for r in good for _, gap in r.gaps()]),
        "tpot_ms": spread_ms(tpot), "e2e_ms": spread_ms([r.end - r.intended for r in good]),
        "late_send_ms": spread_ms(late), "client_cpu_share": round(share, 3), "void": share > VOID_ABOVE,
    }
