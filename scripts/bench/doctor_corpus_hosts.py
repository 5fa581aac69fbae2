"""Two hosts for a case: network namespaces with names and shared memory of their own, and what joins them. All of it lives in
the namespaces of the script."""

import os
import shlex
import subprocess
import sys

from doctor_corpus_lib import ISOLATED, NotPlanted, Skipped, wait_for

ADDRESS = {"h1": "10.77.0.1", "h2": "10.77.0.2"}


def run(*command):
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise Skipped(f"{' '.join(map(str, command[:6]))}: {done.stderr.strip()[:200]}")


class Hosts:
    """h1 and h2. rate_mbit: a cable of that rate; else one that loses a share `loss` of the packets and delays all by delay_s."""

    def __init__(self, ctx, rate_mbit=0.0, loss=0.0, delay_s=0.0):
        if not ISOLATED:
            raise Skipped("needs root for network namespaces")
        with open(ctx.path("hosts"), "w", encoding="utf-8") as f:
            f.write("127.0.0.1 localhost\n" + "".join(f"{a} {h}\n" for h, a in ADDRESS.items()))
        run("mount", "--bind", ctx.path("hosts"), "/etc/hosts")
        ctx.mounts.append("/etc/hosts")
        self.holders = {}
        for h in ADDRESS:
            up = ctx.path(h + ".up")
            script = f"hostname {h} && mount -t tmpfs none /dev/shm && echo >{shlex.quote(up)} && exec sleep 600"
            self.holders[h] = ctx.popen(["unshare", "--net", "--mount", "--uts", "sh", "-c", script], ctx.path(h + ".log"))
            wait_for(lambda up=up: os.path.exists(up), f"host {h}", 10)
        if rate_mbit:
            run("ip", "link", "add", "c1", "type", "veth", "peer", "name", "c2")
        else:
            cable = [sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)), "doctor_corpus_cable.py"), "c1", "c2", loss, delay_s]
            ctx.popen(cable, ctx.path("cable.log"))
            wait_for(lambda: os.path.exists("/sys/class/net/c2") or "c2" in open("/proc/net/dev", encoding="utf-8").read(), "the cable", 10)
        for i, (h, holder) in enumerate(self.holders.items(), 1):
            run("ip", "link", "set", f"c{i}", "netns", holder.pid)
            self.on(h, "ip", "link", "set", f"c{i}", "name", "eth0")
            self.on(h, "ip", "addr", "add", f"{ADDRESS[h]}/24", "dev", "eth0")
            self.on(h, "ip", "link", "set", "lo", "up")
            self.on(h, "ip", "link", "set", "eth0", "up")
            if rate_mbit:
                self.on(h, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{rate_mbit:.2f}mbit", "burst", "64kb", "latency", "20ms")
            else:
                self.on(h, "ip", "route", "replace", "10.77.0.0/24", "dev", "eth0")
        agent = ctx.path("agent")
        with open(agent, "w", encoding="utf-8") as f:
            cases = "".join(f"{h}) pid={p.pid} ;; " for h, p in self.holders.items())
            f.write(f'#!/bin/bash\nh=$1; shift; case $h in {cases}esac\n'
                    f'exec nsenter -t $pid --net --mount --uts --wd={shlex.quote(ctx.dir)} bash -c "$*"\n')
        os.chmod(agent, 0o755)
        self.agent = agent

    def enter(self, host):
        return ["nsenter", "-t", self.holders[host].pid, "--net", "--mount", "--uts"]

    def on(self, host, *command):
        run(*self.enter(host), *command)

    def launcher(self, each=1):
        """mpirun with `each` ranks on each host."""
        where = ",".join(f"{h}:{each}" for h in ADDRESS)
        return [*self.enter("h1"), "env", f"OMPI_MCA_plm_rsh_agent={self.agent}", "mpirun", "--host", where, "-n", each * len(ADDRESS),
                "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"]


def used(job, ctx):
    """Checks that the ranks of the run were on both hosts."""
    with open(os.path.join(job, "run.json"), encoding="utf-8") as f:
        text = f.read()
    if '"h1"' not in text or '"h2"' not in text:
        raise NotPlanted("the ranks are not on both hosts")
    return job
