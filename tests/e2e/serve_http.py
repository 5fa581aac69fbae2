"""HTTP as seen by one client of dserve: a connection, its reply, a stream of events. Over bare sockets, because
http.client hides resets and half-read replies. Every wait is bounded."""

import collections
import json
import select
import socket
import struct
import time

WAIT_S = 60.0  # for what takes a second at most on an idle machine


class Reply:
    def __init__(self, status, headers, body, took_s):
        self.status, self.headers, self.body, self.took_s = status, headers, body, took_s

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    def json(self):
        return json.loads(self.body.decode("utf-8"))  # strict: what is not UTF-8 is an error

    def error(self):
        """The error object; its form is checked."""
        e = self.json()["error"]
        assert set(e) == {"message", "type", "param", "code"}, e
        assert isinstance(e["message"], str) and e["message"] and isinstance(e["type"], str), e
        assert e["param"] is None or isinstance(e["param"], str), e
        return e

    def __repr__(self):
        return f"{self.status} {self.text[:300]}"


def _encode(body):
    if body is None or isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else json.dumps(body)).encode("utf-8", "surrogatepass")


class Connection:
    """HTTP/1.1 exchanges over a socket of its own."""

    def __init__(self, port, timeout_s=WAIT_S):
        self.timeout_s = timeout_s
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def send(self, method, path, body=None, headers=None):
        data = _encode(body)
        head = {"host": "127.0.0.1", **(headers or {})}
        if data is not None:
            head.setdefault("content-type", "application/json")
            head.setdefault("content-length", str(len(data)))
        lines = [f"{method} {path} HTTP/1.1"] + [f"{k}: {v}" for k, v in head.items()]
        self.sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + (data or b""))

    def _fill(self):
        data = self.sock.recv(65536)
        self.buffer += data
        return bool(data)

    def _line(self):
        while b"\n" not in self.buffer:
            if not self._fill():
                raise ConnectionError("the server closed the connection")
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.rstrip(b"\r")

    def read_head(self):
        status = int(self._line().split()[1])
        headers = {}
        while line := self._line():
            name, value = line.decode("latin-1").split(":", 1)
            headers[name.strip().lower()] = value.strip()
        return status, headers

    def _exactly(self, n):
        while len(self.buffer) < n:
            if not self._fill():
                raise ConnectionError("the server closed the connection within a body")
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def body_pieces(self, headers):
        """Pieces of the body as they come."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while n := int(self._line().split(b";")[0], 16):
                yield self._exactly(n)
                self._line()
            self._line()
        elif "content-length" in headers:
            yield self._exactly(int(headers["content-length"]))
        else:
            while self._fill():
                pass
            data, self.buffer = self.buffer, b""
            yield data

    def read_reply(self):
        begin = time.monotonic()
        status, headers = self.read_head()
        body = b"".join(self.body_pieces(headers)) if status not in (204, 304) else b""
        return Reply(status, headers, body, time.monotonic() - begin)

    def closed(self, timeout_s=WAIT_S):
        """Whether the server ends the connection within the time."""
        end = time.monotonic() + timeout_s
        while (left := end - time.monotonic()) > 0:
            if select.select([self.sock], [], [], left)[0]:
                try:
                    if not self.sock.recv(65536):
                        return True
                except ConnectionError:
                    return True
        return False

    def reset(self):
        """Ends the connection by a reset, like a client that was killed."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()


class Stream:
    """The events of a text/event-stream reply. Iterating gives each event's JSON; `lines` has them raw, `times` when
    they came, `done` whether [DONE] did, `error` the error event's object."""

    def __init__(self, connection):
        self.connection = connection
        self.begun = time.monotonic()
        self.lines, self.times, self.comments = [], [], []
        self.done, self.error = False, None
        self.status, self.headers = connection.read_head()
        self.reply = None
        if "text/event-stream" not in self.headers.get("content-type", ""):
            body = b"".join(connection.body_pieces(self.headers))
            self.reply = Reply(self.status, self.headers, body, time.monotonic() - self.begun)

    def __iter__(self):
        if self.reply is not None:
            return
        rest = b""
        for piece in self.connection.body_pieces(self.headers):
            rest += piece
            while b"\n\n" in rest:
                event, rest = rest.split(b"\n\n", 1)
                text = event.decode("utf-8")  # strict: every event alone is valid UTF-8
                if text.startswith(":"):
                    self.comments.append((time.monotonic(), text))
                    continue
                assert text.startswith("data: ") and "\n" not in text, f"not an event: {text!r}"
                self.lines.append(text)
                self.times.append(time.monotonic())
                if text[6:].startswith("[DONE]"):
                    self.done = True
                    continue
                assert not self.done, "an event after [DONE]"
                value = json.loads(text[6:])
                if "error" in value:
                    self.error = value["error"]
                yield value
        assert rest.strip() == b"", f"half an event at the end: {rest!r}"

    def reset(self):
        self.connection.reset()


def text_of(chunk_or_choice):
    """Text of a choice, whole or a chunk's, of either endpoint."""
    for inside in ("message", "delta"):
        if inside in chunk_or_choice:
            return chunk_or_choice[inside].get("content") or ""
    return chunk_or_choice["text"]


class Gathered:
    """A stream read to its end, by choice."""

    def __init__(self, stream):
        self.stream = stream
        self.events = list(stream)
        self.texts = collections.defaultdict(str)
        self.ids = collections.defaultdict(list)
        self.finish, self.stop_reason = {}, {}
        self.usage = None
        for event in self.events:
            if event.get("usage"):
                self.usage = event["usage"]
            for c in event.get("choices", []):
                self.texts[c["index"]] += text_of(c)
                self.ids[c["index"]] += c.get("token_ids") or []
                if c["finish_reason"]:
                    self.finish[c["index"]] = c["finish_reason"]
                    self.stop_reason[c["index"]] = c.get("stop_reason")
