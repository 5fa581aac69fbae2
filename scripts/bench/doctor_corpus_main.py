"""Makes the cases, asks `dbench doctor` about each, counts. scripts/bench/doctor_corpus starts it."""

import argparse
import collections
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import traceback

import doctor_corpus_healthy
import doctor_corpus_serve
import doctor_corpus_train
from doctor_corpus_lib import QUIET, Busy, Context, NotPlanted, Shared, Skipped

CASES = doctor_corpus_train.CASES + doctor_corpus_serve.CASES + doctor_corpus_healthy.CASES
CASES.sort(key=lambda c: c.healthy)
ATTEMPTS = 3
BAR = 0.90


def level(finding):
    return str(finding.get("severity", finding.get("level", ""))).lower()


def is_right(case, finding, rank):
    """Is this finding about the planted cause: its layer, its words, and the rank where it is one rank's."""
    layer = str(finding.get("layer", "")).lower()
    said = " ".join(str(finding.get(k, "")) for k in ("id", "title", "summary", "explanation", "text", "message"))
    if not re.search(case.layers, layer) or not re.search(case.words, said, re.IGNORECASE):
        return False
    return rank is None or re.search(rf"\brank\D{{0,4}}{rank}\b", json.dumps(finding), re.IGNORECASE) is not None


def ask(shared, ctx, targets):
    """The findings, in the doctor's order."""
    targets = targets if isinstance(targets, list) else [targets]
    process = ctx.popen([shared.tool("dbench"), "doctor", *targets, "--json"], ctx.path("doctor.log"), stdout=subprocess.PIPE)
    try:
        out = process.communicate(timeout=60 * ctx.slow)[0].decode()
    except subprocess.TimeoutExpired:
        process.kill()
        raise RuntimeError("the doctor did not answer within a minute") from None
    with open(ctx.path("doctor.json"), "w", encoding="utf-8") as f:
        f.write(out)
    if process.returncode not in (0, 3):
        with open(ctx.path("doctor.log"), encoding="utf-8") as f:
            raise RuntimeError(f"the doctor ended with {process.returncode}: {f.read()[-400:]}")
    return json.loads(out)["findings"]


def attempt(shared, case, number, options):
    """One run of the case: a row of the table."""
    ctx = Context(shared, case, number, 8 if options.patient else 1)
    row = {"name": case.name, "kind": case.kind, "healthy": case.healthy, "recorded": case.recorded}
    begin = time.monotonic()
    try:
        with Busy(ctx.mark) as busy:
            planted = case.plant(ctx)
            with planted if hasattr(planted, "__enter__") else contextlib.nullcontext(planted) as targets:
                findings = [] if options.no_doctor else ask(shared, ctx, targets)
            row["others_cpu"] = round(busy.others() if ctx.others is None else ctx.others, 3)
        row["planted"] = "; ".join(ctx.notes)
        row["findings"] = [f"{f.get('layer', '?')}/{f.get('id', '?')} ({level(f)})" for f in findings]
        if options.no_doctor:
            row["verdict"] = "made"
        elif case.healthy:
            alarms = [f for f in findings if level(f) not in ("info", "effect")]
            row["verdict"] = "false alarm" if alarms else "right"
            row["first"] = alarms[0] if alarms else None
        else:
            places = [i for i, f in enumerate(findings) if is_right(case, f, ctx.rank)]
            row["place"] = places[0] + 1 if places else None
            row["verdict"] = "right" if places[:1] == [0] else "wrong"
            row["first"] = findings[0] if findings else None
        if not case.cpu and row["others_cpu"] > QUIET:
            row["not_quiet"] = True
    except Skipped as e:
        row.update(verdict="skipped", why=str(e))
    except NotPlanted as e:
        row.update(verdict="not planted", why=str(e))
    except Exception as e:  # noqa: BLE001  a doctor that breaks is a wrong answer, and the rest must run
        row.update(verdict="wrong", why=f"{e}", trace=traceback.format_exc()[-600:])
    finally:
        ctx.close()
    row["seconds"] = round(time.monotonic() - begin, 1)
    return row


def show(row):
    said = row.get("why") or ", ".join(row.get("findings", [])[:3]) or "no findings"
    quiet = f" [others had {row['others_cpu']:.0%} of the CPUs]" if row.get("not_quiet") else ""
    print(f"{row['verdict']:<12}{row['name']:<28}{row['seconds']:6.1f} s  {row.get('planted', '')[:90]}\n{'':14}{said[:200]}{quiet}", file=sys.stderr, flush=True)


def chosen(options):
    def wanted(case, names):
        return case.name in names or case.kind in names or ("healthy" if case.healthy else "faulty") in names
    only, skip = ([n for n in text.split(",") if n] for text in (options.only, options.skip))
    known = {c.name for c in CASES} | {"healthy", "faulty", "train", "serve"}
    for name in only + skip:
        if name not in known:
            print(f"doctor_corpus: no case {name}; --list prints them", file=sys.stderr)
            sys.exit(2)
    return [c for c in CASES if (not only or wanted(c, only)) and not wanted(c, skip)]


def verdict(seed, rows, seconds):
    """Only cases that were made, on a quiet machine, count."""
    counted = [r for r in rows if r["verdict"] in ("right", "wrong", "false alarm") and not r.get("not_quiet")]
    faulty = [r for r in counted if not r["healthy"]]
    healthy = [r for r in counted if r["healthy"]]
    first = sum(r["verdict"] == "right" for r in faulty)
    left_out = collections.Counter("not quiet" if r.get("not_quiet") else r["verdict"] for r in rows if r not in counted)
    return {"seed": seed, "faulty": len(faulty), "first_right": first,
            "first_as_info": sum(r["verdict"] == "right" and level(r["first"]) == "info" for r in faulty),
            "share": round(first / len(faulty), 4) if faulty else None,
            "healthy": len(healthy), "false_alarms": sum(r["verdict"] == "false alarm" for r in healthy),
            "real": sum(not r["recorded"] for r in faulty), "recorded": sum(r["recorded"] for r in faulty),
            "left_out": dict(left_out), "seconds": round(seconds, 1), "cases": rows}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    for name in ("--only", "--skip", "--keep"):
        parser.add_argument(name, default="")
    for name in ("--list", "--no-doctor", "--patient"):
        parser.add_argument(name, action="store_true")
    options = parser.parse_args()
    cases = chosen(options)
    if options.list:
        for c in cases:
            kind = "healthy" if c.healthy else "recorded" if c.recorded else "real"
            print(f"{c.name:<28}{c.kind:<7}{kind:<10}{'' if c.healthy else f'{c.layers}: {c.words}'}")
        return 0
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *_: sys.exit(1))
    folder = os.path.abspath(options.keep or os.environ["DOCTOR_CORPUS_DIR"])
    os.makedirs(folder, exist_ok=True)
    rows, begin = [], time.monotonic()
    print(f"seed {options.seed}, {len(cases)} cases", file=sys.stderr, flush=True)
    shared = Shared(options.build, options.seed, folder)
    for case in cases:
        for number in range(1 if options.patient else ATTEMPTS):
            row = attempt(shared, case, number, options)
            show(row)
            if not row.get("not_quiet") and row["verdict"] != "not planted":
                break
        rows.append(row)
    result = verdict(options.seed, rows, time.monotonic() - begin)
    print("faulty {faulty} (real {real}), the cause first {first_right}; healthy {healthy}, false alarms {false_alarms}; left out {left_out}; {seconds} s"
          .format(**result), file=sys.stderr)
    print(json.dumps(result))
    if options.no_doctor:
        return 0
    return 0 if result["faulty"] and result["share"] >= BAR and result["false_alarms"] == 0 else 3


sys.exit(main())
