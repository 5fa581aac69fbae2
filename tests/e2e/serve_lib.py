"""What the black-box tests of dserve share: a server under test, its requests and metrics, checks that count. Standard
library alone. Every wait is bounded."""

import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from serve_http import WAIT_S, Connection, Gathered, Stream

SOURCE = os.environ["RANKWRIGHT_SOURCE"]
BIN = os.path.join(os.environ["RANKWRIGHT_BUILD"], "tools")
os.environ["RANKWRIGHT_CONFIGS"] = os.path.join(SOURCE, "configs")
for _name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe",
              "OMPI_MCA_mpi_yield_when_idle"):  # as scripts/mpi_env
    os.environ.setdefault(_name, "1")
os.environ.setdefault("OMPI_MCA_plm_rsh_agent", "")


# ---- checks ----------------------------------------------------------------------------------------------------------

class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def ok(self, name, holds, detail=""):
        if holds:
            self.passed += 1
            print("ok    " + name, flush=True)
        else:
            self.failed += 1
            print("FAIL  " + name, flush=True)
            for line in str(detail).splitlines()[-20:]:
                print("      | " + line[:400], flush=True)
        return bool(holds)

    def equal(self, name, found, expected):
        return self.ok(name, found == expected, f"expected {expected!r:.700}\nfound    {found!r:.700}")

    def holds(self, name, text, part):
        return self.ok(name, part in text, f"does not hold {part!r}:\n{text}")


checks = Checks()


def main(*groups):
    """Runs the test functions, each on its own: one that breaks is one failure."""
    wanted = sys.argv[1:]
    for group in groups:
        if wanted and group.__name__ not in wanted:
            continue
        print(f"-- {group.__name__}", flush=True)
        try:
            group()
        except Exception as e:  # noqa: BLE001  the rest must run
            import traceback
            checks.ok(f"{group.__name__} runs to its end", False, traceback.format_exc() if not isinstance(e, Missed) else e)
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(0 if checks.failed == 0 else 1)


class Missed(Exception):
    """Something that was waited for did not come."""


def wait_for(condition, what, timeout_s=WAIT_S, every_s=0.02):
    """The first true value of condition()."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Missed(f"waited {timeout_s} s for {what}")
        time.sleep(every_s)


def all_at_once(calls, timeout_s=WAIT_S):
    """Runs the calls on a thread each; their results in order. What a call raises is its result."""
    results = [Missed("no answer")] * len(calls)

    def run(i):
        try:
            results[i] = calls[i]()
        except Exception as e:  # noqa: BLE001
            results[i] = e

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(calls))]
    for t in threads:
        t.start()
    end = time.monotonic() + timeout_s
    for t in threads:
        t.join(max(0.0, end - time.monotonic()))
    return results


@contextlib.contextmanager
def scratch_folder():
    folder = tempfile.mkdtemp()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- the server ------------------------------------------------------------------------------------------------------

class Server:
    """dserve in a process of its own, on a free port; `with` ends it. ranks > 0: under mpirun."""

    def __init__(self, model, *flags, ranks=0, wait=True, env=None):
        self.log_file = tempfile.NamedTemporaryFile(prefix="dserve-", suffix=".log", delete=False)
        command = [os.path.join(BIN, "dserve"), "--model", model, "--port", "0", *map(str, flags)]
        if ranks > 0:
            command = ["mpirun", "-n", str(ranks), *command]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log_file,
                                        stderr=subprocess.STDOUT, start_new_session=True,
                                        env={**os.environ, **(env or {})})
        self.key = None
        self.port = None
        try:
            self.port = int(wait_for(lambda: self.ended_or(r"http://[\w.]+:(\d+)"), "the server's port").group(1))
            if wait:
                self.wait_ready()
        except BaseException:
            self.__exit__()
            raise

    def ended_or(self, pattern):
        """The first match in what it has printed; Missed when it has ended."""
        ended = self.process.poll()
        log = self.log()
        if ended is not None:
            self.__exit__()
            raise Missed(f"the server ended with {ended}:\n{log[-2000:]}")
        return re.search(pattern, log)

    def wait_ready(self, timeout_s=WAIT_S):
        def ready():
            if self.process.poll() is not None:
                raise Missed(f"the server ended with {self.process.returncode}")
            return self.get("/health").status == 200
        wait_for(ready, "/health to say 200", timeout_s)

    def log(self):
        with open(self.log_file.name, encoding="utf-8", errors="replace") as f:
            return f.read()

    # -- requests

    def _headers(self, headers):
        return {**({"authorization": f"Bearer {self.key}"} if self.key else {}), **(headers or {})}

    def request(self, method, path, body=None, headers=None, timeout_s=WAIT_S):
        begin = time.monotonic()
        connection = Connection(self.port, timeout_s)
        try:
            connection.send(method, path, body, {"connection": "close", **self._headers(headers)})
            reply = connection.read_reply()
        finally:
            connection.close()
        reply.took_s = time.monotonic() - begin
        return reply

    def get(self, path, headers=None, timeout_s=WAIT_S):
        return self.request("GET", path, None, headers, timeout_s)

    def post(self, path, body, headers=None, timeout_s=WAIT_S):
        return self.request("POST", path, body, headers, timeout_s)

    def completion(self, prompt, **fields):
        """The JSON of a completion that must succeed."""
        reply = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields})
        assert reply.status == 200, reply
        return reply.json()

    def chat(self, messages, **fields):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        reply = self.post("/v1/chat/completions", {"messages": messages, "temperature": 0, **fields})
        assert reply.status == 200, reply
        return reply.json()

    def ids(self, prompt, **fields):
        """Greedy token ids of a completion's first choice."""
        return self.completion(prompt, **{**fields, "return_token_ids": True})["choices"][0]["token_ids"]

    def stream(self, path, body, headers=None, timeout_s=WAIT_S):
        connection = Connection(self.port, timeout_s)
        connection.send("POST", path, {"temperature": 0, **body, "stream": True}, self._headers(headers))
        return Stream(connection)

    def gather(self, path, body, headers=None, timeout_s=WAIT_S):
        stream = self.stream(path, body, headers, timeout_s)
        if stream.reply is not None:
            raise Missed(f"expected a stream, found {stream.reply}")
        gathered = Gathered(stream)
        stream.connection.close()
        return gathered

    def works(self):
        """Whether an ordinary request is answered."""
        try:
            return self.completion("one two", max_tokens=2)["usage"]["completion_tokens"] == 2
        except (AssertionError, OSError):
            return False

    # -- what it says of itself

    def load(self):
        """(running, waiting) sequences."""
        load = self.get("/load").json()
        return load["running"], load["waiting"]

    def metrics(self):
        """{name: sum over its labels}, of counters and gauges."""
        values = collections.defaultdict(float)
        for line in self.get("/metrics").text.splitlines():
            if line and not line.startswith("#"):
                name, value = re.match(r"([^\s{]+)(?:\{.*\})?\s+(\S+)", line).groups()
                values[name] += float(value)
        return values

    def wait_idle(self, timeout_s=WAIT_S):
        wait_for(lambda: self.load() == (0, 0), "the server to be idle", timeout_s)

    # -- its end

    def signal(self, number):
        self.process.send_signal(number)

    def exit_code(self, timeout_s=WAIT_S):
        """Waits for the end of the process."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Missed(f"waited {timeout_s} s for the server to end") from None

    def rank_pids(self):
        """Process ids of the ranks, lowest rank first, of a server under mpirun."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/environ", "rb") as f:
                    environ = dict(e.split(b"=", 1) for e in f.read().split(b"\0") if b"=" in e)
                rank = environ.get(b"OMPI_COMM_WORLD_RANK")
                if rank is not None and os.getsid(int(name)) == os.getsid(self.process.pid):
                    found[int(rank)] = int(name)
        return [found[r] for r in sorted(found)]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.log_file.closed:
            return
        if exception and exception[0] not in (None, SystemExit):
            print("".join("      log | " + line + "\n" for line in self.log().splitlines()[-15:]), end="")
        ranks = self.rank_pids()
        for pid in ranks:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGTERM)  # the second one does not drain
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                pass
        for pid in [self.process.pid, *ranks]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)
        self.log_file.close()
        os.unlink(self.log_file.name)


def server_with_pages(model, pages, *flags):
    """A server whose cache has that many pages, a few more or less: what a process takes beside it varies."""
    memory = 1 << 20
    for _ in range(60):
        try:
            server = Server(model, "--memory", memory, *flags, wait=False)
            found = int(wait_for(lambda: server.ended_or(r"\((\d+) pages\)"), "the size of the cache").group(1))
            server.wait_ready()
            if pages <= found <= pages + 8:
                return server, found
            page_bytes = server.get("/debug/memory").json()["now"]["page_bytes"]
            memory += (pages + 4 - found) * page_bytes
            server.__exit__()
        except Missed as e:
            least = re.search(r"at least --memory (\d+)MiB", str(e))
            if least is None:
                raise
            memory = int(least.group(1)) << 20
    raise Missed(f"no cache of {pages} pages in 60 tries")


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
