"""What the cases of the doctor's corpus are made with: jobs that are started, held and ended; a quiet machine or not."""

import contextlib
import glob
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

ISOLATED = os.environ.get("DOCTOR_CORPUS_ISOLATED") == "1"  # root, in namespaces of our own
MARK = "DOCTOR_CORPUS_MARK"
QUIET = 0.20  # with more of the CPUs than this with others, what is seen is not the fault alone
CORES = len(os.sched_getaffinity(0))


class Skipped(Exception):
    """This machine cannot make the case."""


class NotPlanted(Exception):
    """The fault did not come to pass: nothing to ask the doctor about."""


class Case:
    """One planted fault, or none. layers and words: what the first finding must be about, as regular expressions."""

    def __init__(self, name, kind, plant, layers="", words="", healthy=False, cpu=False, recorded=False, root=False):
        self.name, self.kind, self.plant, self.layers, self.words = name, kind, plant, layers, words
        self.healthy, self.cpu, self.recorded, self.root = healthy, cpu, recorded, root


# ---- processes ---------------------------------------------------------------------------------------------------------

def _read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def pids():
    return [int(p) for p in os.listdir("/proc") if p.isdigit()]


def marked(mark):
    """The living processes started with this mark, those of mpirun and its ranks included."""
    wanted = f"{MARK}={mark}".encode()
    return [p for p in pids() if p != os.getpid() and wanted in _read(f"/proc/{p}/environ").split(b"\0")]


def end_all(mark):
    for _ in range(100):
        left = marked(mark)
        if not left:
            return
        for p in left:
            with contextlib.suppress(OSError):
                os.kill(p, signal.SIGKILL)
        time.sleep(0.05)


class Busy:
    """CPU time of this host that others took, while a case runs: /proc/stat less our own processes'. Sampled, so that what
    short-lived processes of ours use after their last sample counts as others'."""

    def __init__(self, mark):
        self.mark, self.seen, self.stop = mark, {}, threading.Event()
        self.known = set()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    @staticmethod
    def _host():
        fields = [int(x) for x in _read("/proc/stat").split(b"\n", 1)[0].split()[1:9]]
        idle = fields[3] + fields[4]
        return sum(fields) - idle, sum(fields)

    def _sample(self):
        wanted = f"{MARK}={self.mark}".encode()
        for p in pids():
            stat = _read(f"/proc/{p}/stat").rsplit(b")", 1)
            if len(stat) != 2:
                continue
            fields = stat[1].split()
            key = (p, fields[19])
            if key not in self.known:
                if p != os.getpid() and wanted not in _read(f"/proc/{p}/environ").split(b"\0"):
                    continue
                self.known.add(key)
            ticks = int(fields[11]) + int(fields[12])
            first = self.seen.setdefault(key, [ticks if p == os.getpid() else 0, ticks])
            first[1] = max(first[1], ticks)

    def _watch(self):
        while not self.stop.wait(0.2):
            self._sample()

    def __enter__(self):
        self._sample()
        self.begin = self._host()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def others(self):
        """Share of all cores' time that others have had since the start."""
        self._sample()
        busy, total = (b - a for a, b in zip(self.begin, self._host()))
        own = sum(last - first for first, last in list(self.seen.values()))
        return max(0.0, busy - own) / max(1, total)


# ---- a case under way --------------------------------------------------------------------------------------------------

def wait_for(condition, what, timeout_s=60.0, every_s=0.02):
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise NotPlanted(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(every_s)


def lines(path):
    """The JSON lines of a file; a last one that is being written is left out."""
    found = []
    for line in _read(path).decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


class Job:
    """mpirun dtrain."""

    def __init__(self, process, mark, out, log, slow):
        self.process, self.mark, self.out, self.log, self.slow = process, mark, out, log, slow

    def text(self):
        return _read(self.log).decode(errors="replace")

    def rank_pids(self):
        """rank -> pid of its dtrain."""
        found = {}
        for p in marked(self.mark):
            if _read(f"/proc/{p}/comm").strip() == b"dtrain":
                rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", _read(f"/proc/{p}/environ"))
                found[int(rank.group(1)) if rank else 0] = p
        return found

    def at_step(self, step):
        """Waits until this step is in the record; False when the job has ended before."""
        path = os.path.join(self.out, "metrics.jsonl")
        return wait_for(lambda: _read(path).count(b"\n") >= step or (self.process.poll() is not None and "over"),
                        f"step {step}: {self.text()[-500:]}", 60 * self.slow) is True

    def wait(self, expect=(0,)):
        try:
            code = self.process.wait(90 * self.slow)
        except subprocess.TimeoutExpired:
            raise NotPlanted(f"the run did not end: {self.text()[-800:]}") from None
        if expect is not None and code not in expect:
            raise NotPlanted(f"the run ended with {code}: {self.text()[-800:]}")
        return code


class Context:
    """What a case is made with: its folder, its draws, its processes."""

    def __init__(self, shared, case, attempt, slow):
        self.shared, self.case, self.slow = shared, case, slow  # slow: factor on waits, for a machine that is not quiet
        self.rng = random.Random(f"{shared.seed} {case.name}")
        self.dir = os.path.join(shared.dir, case.name + (f".{attempt}" if attempt else ""))
        os.makedirs(self.dir)
        self.mark = f"{os.getpid()}-{os.path.basename(self.dir)}"
        self.notes, self.rank, self.others, self.hogs, self.mounts = [], None, None, [], []

    # -- draws

    def note(self, text):
        self.notes.append(text)

    def between(self, low, high):
        """Log-uniform: a factor of two is as likely at either end."""
        return low * (high / low) ** self.rng.random()

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    # -- processes

    def popen(self, command, log, env=None, stdout=None):
        with open(log, "ab") as f:
            return subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=stdout or f, stderr=f, start_new_session=True,
                                    cwd=self.dir, env={**os.environ, MARK: self.mark, **(env or {})})

    def tool(self, *command):
        """Runs one of our tools to its end."""
        log = self.path("tools.log")
        name, *rest = command
        process = self.popen([self.shared.tool(name), *rest], log)
        if process.wait(120 * self.slow) != 0:
            raise NotPlanted(f"{name} {rest[0]} failed: {_read(log).decode(errors='replace')[-500:]}")

    def start(self, *flags, ranks=0, out="run", launcher=None, **options):
        """Starts dtrain; keyword options are flags: lr=1e-3 is --lr 1e-3, over the defaults below. ranks 0: two, or one on a machine
        that is not quiet, where those that wait for each other hardly get on."""
        ranks = ranks or (1 if self.slow > 1 else 2)
        given = {"model": "tiny-llama", "data": self.shared.data, "seq_len": 128, "micro_batch": 8, "lr": 1e-3, "warmup_steps": 10, "steps": 60,
                 "precision": "f32", "threads": 1, "comm_timeout": 15, "log_every": 20, "min_lr": 1e-4, **options}
        command = [*(launcher or ["mpirun", "-n", ranks]), self.shared.tool("dtrain"), *flags, "--out", self.path(out)]
        for key, value in given.items():
            command += ["--" + key.replace("_", "-"), value]
        log = self.path(out + ".log")
        return Job(self.popen(command, log), self.mark, self.path(out), log, self.slow)

    def train(self, *flags, expect=(0,), **options):
        """Runs dtrain to its end; its run directory."""
        job = self.start(*flags, **options)
        job.wait(expect)
        return job.out

    def hog(self, count, core=None):
        """Starts busy loops, on one core or anywhere."""
        pin = ["taskset", "-c", core] if core is not None else []
        for _ in range(count):
            self.hogs.append(self.popen([*pin, "sh", "-c", "while :; do :; done"], self.path("hog.log")))

    def small_disk(self, size):
        """A folder with this many bytes of room."""
        if not ISOLATED:
            raise Skipped("needs root for a small file system")
        folder = self.path("disk")
        os.makedirs(folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True)
        self.mounts.append(folder)
        return folder

    def slow_disk(self, path, wait_s):
        """The file on a disk that takes so long for each page; where it is, and how to make that disk fast again."""
        if not ISOLATED or not os.path.exists("/dev/fuse"):
            raise Skipped("needs root and /dev/fuse for a slow disk")
        folder = self.path("slow")
        os.makedirs(folder)
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "doctor_corpus_disk.py")
        process = self.popen([sys.executable, "-B", program, path, folder, wait_s], self.path("disk.log"))
        self.mounts.append(folder)
        wait_for(lambda: os.path.exists(os.path.join(folder, "file")), "the slow disk", 10 * self.slow)
        return os.path.join(folder, "file"), lambda: process.send_signal(signal.SIGUSR1)

    def close(self):
        end_all(self.mark)
        for hog in self.hogs:
            hog.wait()
        for folder in self.mounts:
            subprocess.run(["umount", "-l", folder], check=False, stderr=subprocess.DEVNULL)


class Shared:
    """What the cases share: a text, token files, models, a healthy run to cut records from."""

    def __init__(self, build, seed, folder):
        self.build, self.seed, self.dir = os.path.abspath(build), seed, folder
        self.made = {}
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
        names = sorted(n for kind in ("cpp", "h") for n in glob.glob(os.path.join(root, "[klt][iek]*", "**", "*." + kind), recursive=True))
        self.text = b"".join(_read(n) for n in names)[:6_000_000]  # this project's sources: text that nobody has to fetch
        self.data = self.tokens("data", self.text)

    def tool(self, name):
        return os.path.join(self.build, "tools", name)

    def tokens(self, name, text):
        """A token file of bytes."""
        path = os.path.join(self.dir, name)
        with open(path + ".txt", "wb") as f:
            f.write(text)
        done = subprocess.run([self.tool("dtrain"), "prepare", "--input", path + ".txt", "--tokenizer", "bytes", "--output", path + ".h5"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"dtrain prepare: {done.stderr[-500:]}")
        return path + ".h5"

    def model(self, name, **changes):
        """A configuration like tiny-llama's, with changes."""
        path = os.path.join(self.dir, name + ".json")
        with open(os.path.join(os.environ["RANKWRIGHT_CONFIGS"], "models", "tiny-llama.json"), encoding="utf-8") as f:
            config = {**json.load(f), **changes}
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        return path

    def once(self, name, make):
        """What several cases need and the first one makes."""
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]
