"""The programs that the serving benchmark runs: dserve, the peer's server and benchmarks, the probe of the machine."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

# The allocator alike for all programs: where fresh memory is slow (virtual machines), what is mapped anew each step is what is measured.
ENV = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "8589934592", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_TOP_PAD_": "268435456"}
for _name in ("OMP_NUM_THREADS", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "http_proxy", "HTTP_PROXY"):
    ENV.pop(_name, None)
START_S = 600.0
PEER_FORMAT = {"f32": "f32", "bf16": "bf16", "q8_0": "int8", "q4_0": "int4"}  # a file's suffix -> the format of ours beside it


class Failed(Exception):
    pass


def output_of(command, both=False, timeout_s=3600):
    done = subprocess.run([str(c) for c in command], env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=timeout_s, check=False, start_new_session=True)
    if done.returncode != 0:
        raise Failed(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout + (done.stderr if both else "")


def get(url, timeout_s=10):
    with urllib.request.urlopen(url, timeout=timeout_s) as reply:
        return reply.read().decode()


class Server:
    """A server in a session of its own, up when it is entered."""

    def __init__(self, command, threads):
        self.command, self.threads = [str(c) for c in command], threads
        self.log = tempfile.NamedTemporaryFile("w", prefix="serving-", suffix=".log")
        self.process = self.url = None

    def find_url(self):
        raise NotImplementedError

    def wait(self, what, look):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Failed(f"{self.command[0]} ended with {self.process.returncode}:\n{self.text()[-2000:]}")
            found = look()
            if found:
                return found
            time.sleep(0.05)
        raise Failed(f"{self.command[0]}: waited {START_S:.0f} s for {what}:\n{self.text()[-2000:]}")

    def healthy(self):
        try:
            get(self.url + "/health", 5)
            return True
        except (OSError, urllib.error.URLError):
            return False

    def text(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as f:
            return f.read()

    def __enter__(self):
        self.process = subprocess.Popen(self.command, env=ENV, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)
        try:
            self.url = self.wait("its address", self.find_url)
            self.wait("/health", self.healthy)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for how, patience_s in ((signal.SIGTERM, 10), (signal.SIGTERM, 5), (signal.SIGKILL, 10)):
            if self.process.poll() is not None:
                break
            self.process.send_signal(how)
            try:
                self.process.wait(patience_s)
            except subprocess.TimeoutExpired:
                pass
        self.log.close()

    def cpu_s(self):
        """CPU seconds of each thread so far, to the nanosecond: ticks would miss most of what short tasks take."""
        seconds = {}
        for name in os.listdir(f"/proc/{self.process.pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{self.process.pid}/task/{name}/schedstat", encoding="ascii") as f:
                seconds[int(name)] = int(f.read().split()[0]) / 1e9
        if not seconds:
            raise Failed(f"/proc/{self.process.pid}/task/*/schedstat: expected a kernel that tells threads' CPU time")
        return seconds

    def beside_engine_s(self, before, after):
        """CPU seconds between two cpu_s() of all threads but the engine's, which are the busiest ones: as many as compute."""
        used = sorted((after[t] - before.get(t, 0.0) for t in after), reverse=True)
        return sum(used[self.threads:])


class Dserve(Server):
    def __init__(self, tool, model, threads, flags):
        super().__init__([tool, "--model", model, "--port", 0, "--threads", threads, *flags], threads)

    def find_url(self):
        found = re.search(r'"url":"([^"]+)"', self.text())
        return found and found.group(1)

    def memory(self):
        return json.loads(get(self.url + "/debug/memory"))["now"]


class LlamaServer(Server):
    def __init__(self, folder, model, threads, streams, context):
        with socket.socket() as s:  # it takes no port 0
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        super().__init__([os.path.join(folder, "llama-server"), "-m", model, "-t", threads, "-tb", threads, "-np", streams, "-c", context,
                          "--host", "127.0.0.1", "--port", self.port], threads)

    def find_url(self):
        return f"http://127.0.0.1:{self.port}"


def llama_bench(folder, model, threads, n_prompt, n_gen):
    """{"prefill", "decode"}: tok/s of one sequence."""
    text = output_of([os.path.join(folder, "llama-bench"), "-m", model, "-t", threads, "-p", n_prompt, "-n", n_gen, "-r", 1, "-o", "json"])
    runs = json.loads(text[text.index("["):])
    return {"prefill" if r["n_prompt"] else "decode": r["avg_ts"] for r in runs}


def llama_batched_bench(folder, model, threads, sequences, n_prompt, n_gen):
    """tok/s of all the sequences' decodes together."""
    text = output_of([os.path.join(folder, "llama-batched-bench"), "-m", model, "-t", threads, "-tb", threads, "-c",
                      max(8192, 2 * sequences * (n_prompt + n_gen)), "-npp", n_prompt, "-ntg", n_gen, "-npl", sequences], both=True)
    rows = [line.split("|") for line in text.splitlines() if re.match(r"\|\s*\d+ \|", line)]
    if len(rows) != 1:
        raise Failed(f"llama-batched-bench: expected one row of results, found {len(rows)}:\n{text[-2000:]}")
    return float(rows[0][8])


def probe(build, threads):
    """What the machine can do: GB/s of a read (the larger of 256 MiB's and 1 GiB's), GFLOP/s."""
    small, gemm = os.path.join(build, "scripts/bench/serve_kernels_bench"), os.path.join(build, "scripts/bench/gemm_bench")
    for _ in range(3):
        head = json.loads(output_of([small, "--threads", threads, "--only", "none"]).splitlines()[0])
        large = json.loads(output_of([gemm, "--threads", threads, "--rows", 3, "--no-peer"]))["read_gb_per_s"] if os.path.exists(gemm) else None
        if min(head["read_gb_per_s"], *head["peak"].values()) > 0:
            return {"read_gb_per_s": max(head["read_gb_per_s"], large or 0), "read_gb_per_s_256mib": head["read_gb_per_s"],
                    "read_gb_per_s_1gib": large, "gflops": head["peak"], "isa": head["isa"]}
    raise Failed(f"serve_kernels_bench: no peak could be measured: {head}; is the machine busy?")


def busy_cores(seconds=0.5):
    """Cores that were busy with whatever, while we wait."""
    def now():
        with open("/proc/stat", encoding="ascii") as f:
            t = [int(x) for x in f.readline().split()[1:9]]
        return sum(t) - t[3] - t[4]
    before, begin = now(), time.monotonic()
    time.sleep(seconds)
    return (now() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begin)


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), os.uname().machine)
