"""Search for inputs that break the readers of hostile texts, values and files.

    python -m benchmarks.fuzz --minutes 2 [--targets extraction,comparison,…] [--seed N] [--keep FOLDER]
    python -m benchmarks.fuzz --replay FINDING

Hypothesis draws inputs for each target (benchmarks/fuzz_targets.py) for so many minutes, and checks its property and
the bounds of its CPU time and memory. An exception is shrunk to a minimal input; an input that costs too much is kept
as it was drawn. Every target has a worker process with limits of CPU time and address space, so that an example that
never ends, or that kills the process, is a finding like the others: the input is the one that was begun last, and a
new worker goes on. Each finding, one for each place in the code, is printed on stderr as JSON with its input and kept
as a file in `--keep`. Prints one JSON object: the seed, and for each target its examples and findings. The exit status
is 1 if there was a finding. `--replay` runs the input of one file again, without limits.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import json
import math
import os
import re
import resource
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks.fuzz_targets import TARGETS, CostlyError, Target, bounded, target_named
from benchmarks.redteam_answers import reset_peak
from benchmarks.rollout_client import memory
from sweet.installation import VERSION

ROOT = Path(__file__).parents[1]
BLOCKED_SECONDS = 180.0
"""Time without a new example after which a worker is killed, also if it uses no CPU."""
ADDRESS_SPACE = 4 * 2**30
BATCH = 200
"""Examples for each seed; the next seed follows."""

Finding = dict[str, Any]


def place(error: BaseException) -> str:
    """Return the class of an error and the last line of the project that it passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(str(ROOT)) and Path(frame.filename).name != "fuzz.py"]
    where = f"{Path(own[-1].filename).relative_to(ROOT)}:{own[-1].lineno}" if own else "?"
    return f"{type(error).__name__} at {where}"


class Worker:
    """Runs examples of one target until its time is up; prints a JSON line for each finding and each batch.

    Attributes:
        begun: the file with the input that was begun last.
        known: the places of findings, which are not reported again.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self.name: str = spec["target"]
        self.target: Target = target_named(self.name)
        self.begun = Path(spec["begun"])
        self.known: set[str] = set(spec["known"])
        self.ends = time.monotonic() + spec["seconds"]
        self.once: bool = spec["once"]
        self.seed: int = spec["seed"]
        self.cpu_seconds: int = spec["cpu_seconds"]
        self.examples = 0
        self.failed: list[tuple[Any, BaseException]] = []

    def run(self) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        faulthandler.register(signal.SIGXCPU, all_threads=False, chain=True)  # says where, then ends the process
        while time.monotonic() < self.ends:
            self.batch()
            self.seed += 1
            print(json.dumps({"examples": self.examples}), flush=True)
            self.examples = 0
            if self.once:
                return

    def batch(self) -> None:
        configured = settings(
            max_examples=BATCH,
            database=None,
            derandomize=False,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        )
        self.failed.clear()
        try:
            seed(self.seed)(configured(given(self.target.inputs)(self.check)))()
        except Exception:
            if not self.failed:  # an error of the strategy
                raise
            value, error = self.failed[-1]  # the minimal input
            self.report("exception", place(error), f"{type(error).__name__}: {str(error)[:500]}", value)

    def check(self, value: Any) -> None:
        if time.monotonic() > self.ends:
            return
        self.examples += 1
        self.begun.write_text(json.dumps({"seed": self.seed, "input": value}))
        limit_cpu(self.cpu_seconds)
        size = self.target.size(value)
        reset_peak()
        before = memory("VmRSS") or 0.0
        try:
            with bounded(size, lambda: (memory("VmHWM") or 0.0) - before):
                self.target.check(value)
        except CostlyError as error:
            self.report("costly", f"costly: {shape(value)}", str(error), value)
        except Exception as error:
            if place(error) in self.known:
                return
            self.failed.append((value, error))
            raise

    def report(self, kind: str, where: str, what: str, value: Any) -> None:
        if where in self.known:
            return
        self.known.add(where)
        finding = {"target": self.name, "kind": kind, "place": where, "what": what, "input": value}
        print(json.dumps({**finding, "seed": self.seed}), flush=True)


def limit_cpu(seconds: int) -> None:
    """Let the kernel end this process, by SIGXCPU, after so many more seconds of CPU time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime) + seconds, hard))


def shape(value: Any) -> str:
    """Return the part of a costly input that distinguishes it from others: its longest repetition, or its keys."""
    pieces = value.get("text", value.get("bytes")) if isinstance(value, dict) else value
    if isinstance(pieces, list) and pieces and all(isinstance(each, list) and len(each) == 2 for each in pieces):
        longest = max(pieces, key=lambda each: each[1] if isinstance(each[1], int) else 0)
        return f"{longest[0]!r} repeated"
    return ",".join(sorted(value)) if isinstance(value, dict) else type(value).__name__


class Search:
    """The search in one target: workers one after another until the time is up."""

    def __init__(self, target: str, seed: int, seconds: float, keep: Path, cpu_seconds: int) -> None:
        self.target, self.seed, self.keep, self.cpu_seconds = target, seed, keep, cpu_seconds
        self.ends = time.monotonic() + seconds
        self.findings: list[Finding] = []
        self.examples = self.workers = 0

    def run(self, *, once: bool = False) -> dict[str, Any]:
        """Search until the time is up, or with `once` for one batch of examples; return the results."""
        while (left := self.ends - time.monotonic()) > 0 and not (once and self.workers):
            self.workers += 1
            with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
                self.one_worker(Path(folder), left, once)
        return {"examples": self.examples, "workers": self.workers, "findings": self.findings}

    def one_worker(self, folder: Path, seconds: float, once: bool) -> None:
        begun, said, errors = folder / "begun", folder / "said", folder / "errors"
        begun.touch()
        known = [finding["place"] for finding in self.findings]
        spec = {"target": self.target, "begun": str(begun), "known": known, "seconds": seconds, "once": once}
        spec |= {"seed": self.seed + 1_000_000 * self.workers, "cpu_seconds": self.cpu_seconds}
        with said.open("wb") as out, errors.open("wb") as err:
            environment = {**os.environ, "TMPDIR": str(folder)}
            command = [sys.executable, "-m", "benchmarks.fuzz", "--worker"]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=ROOT, env=environment, text=True
            )
            try:
                if process.stdin is None:
                    raise RuntimeError("the worker has no pipe")
                with contextlib.suppress(BrokenPipeError), process.stdin as stdin:  # it has ended before it read all
                    stdin.write(json.dumps(spec))
                blocked = self.wait(process, begun)
            finally:
                process.kill()
                process.wait()
        for line in said.read_bytes().splitlines():
            self.take(json.loads(line))
        if process.returncode != 0:
            self.take(died(self.target, process.returncode, blocked, begun, errors.read_text(errors="replace")))

    @staticmethod
    def wait(process: subprocess.Popen[str], begun: Path) -> bool:
        """Wait for the end of the worker; return whether it has to be ended because nothing happens."""
        while process.poll() is None:
            if time.time() - begun.stat().st_mtime > BLOCKED_SECONDS:
                return True
            time.sleep(0.1)
        return False

    def take(self, record: dict[str, Any]) -> None:
        """Count the examples of a batch, or keep a finding that is new."""
        if "examples" in record:
            self.examples += record["examples"]
            return
        if any(finding["place"] == record["place"] for finding in self.findings):
            return
        name = hashlib.sha256(json.dumps(record["place"]).encode()).hexdigest()[:8]
        path = self.keep / f"{self.target.replace(':', '.')}-{name}.json"
        path.write_text(json.dumps({**record, "sweet": VERSION}, indent=1) + "\n")
        self.findings.append({**record, "file": str(path)})
        print(json.dumps(self.findings[-1]), file=sys.stderr, flush=True)


def died(target: str, status: int, blocked: bool, begun: Path, errors: str) -> Finding:
    """Return the finding of a worker that ended by itself; the traceback, innermost line first, says where."""
    frames = re.findall(rf'File "{re.escape(str(ROOT))}/((?:sweet|benchmarks|tests)/[^"]+)", line (\d+)', errors)
    where = ":".join(frames[0]) if frames else "?"
    name = "blocked" if blocked else signal.Signals(-status).name if status < 0 else f"status {status}"
    text = begun.read_text()
    started = json.loads(text) if text else {"seed": None, "input": None}
    what = {"SIGXCPU": "no end within the CPU time of one example"}.get(name, errors.strip()[-500:])
    return {"target": target, "kind": "died", "place": f"{name} at {where}", "what": what, **started}


def replay(path: Path) -> None:
    """Run the input of a finding again."""
    finding = json.loads(path.read_text())
    target = target_named(finding["target"])
    started = time.process_time()
    with bounded(target.size(finding["input"])):
        target.check(finding["input"])
    print(json.dumps({"holds": True, "cpu_s": round(time.process_time() - started, 3)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
    parser.add_argument("--targets", type=lambda text: text.split(","), default=list(TARGETS), help="or MODULE:TARGET")
    parser.add_argument("--cpu-seconds", type=int, default=20, help="CPU time after which an example counts as endless")
    parser.add_argument("--seed", type=int, help="by default drawn")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir(), "sweet-findings"))
    parser.add_argument("--replay", type=Path, metavar="FINDING")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        Worker(json.load(sys.stdin)).run()
    elif options.replay:
        replay(options.replay)
    else:
        first = secrets.randbelow(1_000_000) if options.seed is None else options.seed
        print(f"seed {first}", file=sys.stderr)
        options.keep.mkdir(parents=True, exist_ok=True)
        found = {
            name: Search(name, first, 60 * options.minutes, options.keep, options.cpu_seconds).run()
            for name in options.targets
        }
        print(json.dumps({"seed": first, "minutes": options.minutes, "targets": found}))
        sys.exit(any(result["findings"] for result in found.values()))


if __name__ == "__main__":
    main()
