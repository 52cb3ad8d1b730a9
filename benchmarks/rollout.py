"""What `sweet rollout` costs beside the models: measured against a mock server whose every latency is known.

    python -m benchmarks.rollout [--only throughput|cost|resume|faults] [--rounds 3]      (from the project's folder)

Prints one JSON object, figures as medians over the rounds (round r draws with `--seed` + r), goals beside them. The
server (tests/rollouts/mock_server.py) runs in a process of its own, and so does each measured client
(benchmarks/rollout_client.py), whose imports are done before the clock starts. Each figure tells `late_ms`, by how much
the server's answers left after they were due: where that is not small, a busy machine was measured.

throughput  400 dialogues at concurrency 200. `bound_s` = max(longest dialogue's latencies, sum of all / concurrency);
            `list_s` is what a client without any cost of its own would need in the order of the tasks, which it cannot
            know to be a bad one. `lockstep` is the published arrangement (benchmarks/lockstep.py) in batches of 200
            on the same server.
cost        CPU (user and system) of the client process a turn at concurrency 1,000. A turn is one request of the agent
            and, unless it is the dialogue's last, one of the human. Once with plain answers and once with token ids
            and log-probabilities in them, as vLLM gives them where they are asked for. Then the peak memory with
            2,000 dialogues open at once (latencies of 2 s, so that they are).
resume      `sweet rollout RUN … --json` on a run with 100,000 finished dialogues and 100 missing. `overhead_s` is its
            time until the first new request reaches the server and from the last answer until it ends; `startup_s` is
            the same of a run with nothing in it and 100 to do; the difference is the reading. The file is in the
            system's cache: it has just been written.
faults      a tenth of the requests fails (429, 500, 503, a reset, a stall of `--stall` seconds, in turn), against the
            same dialogues without faults. `throughput_share` counts the dialogues that finished in the one call.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.finished import fill
from benchmarks.rollout_client import ask
from tests.rollouts.mock_server import AGENT, HUMAN, Draws, task_row

ROOT = Path(__file__).resolve().parent.parent
WARM = range(900_000, 999_999)
Figures = dict[str, Any]


def bound(draws: Draws, dialogues: Iterable[int], concurrency: int) -> float:
    """Seconds below which no client can be, whatever order it plays the dialogues in."""
    totals = [draws.total(number) for number in dialogues]
    return max(max(totals), sum(totals) / concurrency)


def listed(draws: Draws, dialogues: Iterable[int], concurrency: int) -> float:
    """Seconds when each dialogue begins, in the order given, as soon as one of `concurrency` places is free."""
    free = [0.0] * concurrency
    for number in dialogues:
        heapq.heapreplace(free, free[0] + draws.total(number))
    return max(free)


def warm_task(draws: Draws, faults: float) -> int:
    """A short dialogue that meets no fault."""
    return next(
        number
        for number in WARM
        if 1 < draws.turns(number) < 4
        and draws.total(number) < 3 * draws.mean
        and all(draws.share("fault", number, turn, role, 1) >= faults for turn, role in draws.requests(number))
    )


class Bench:
    """One place to work in, the options, and how servers and clients are started."""

    def __init__(self, options: argparse.Namespace, place: Path) -> None:
        self.options, self.place = options, place
        self.started = 0

    def path(self, name: str) -> Path:
        """A path that nobody has used."""
        self.started += 1
        return self.place / f"{self.started}-{name}"

    def tasks(self, numbers: Iterable[int]) -> Path:
        path = self.path("tasks.jsonl")
        path.write_text("".join(json.dumps(task_row(number)) + "\n" for number in numbers))
        return path

    @contextmanager
    def serving(self, draws: Draws, *flags: str) -> Iterator[str]:
        """A server's address."""
        command = [sys.executable, "-m", "tests.rollouts.mock_server", "--seed", str(draws.seed)]
        command += ["--mean", str(draws.mean), "--sigma", str(draws.sigma), *flags]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                yield server.stdout.readline().strip()
            finally:
                server.kill()

    def client(self, address: str, draws: Draws, count: int, *, faults: float = 0.0, **spec: Any) -> Figures:
        """Play the dialogues 0 to `count` - 1 and return what that took."""
        told = {
            "address": address,
            "run": str(self.path("run")),
            "tasks": str(self.tasks(range(count))),
            "warm_tasks": str(self.tasks([warm_task(draws, faults)])),
            **spec,
        }
        command = [*self.options.under, sys.executable, "-m", "benchmarks.rollout_client"]
        done = subprocess.run(
            command, cwd=ROOT, input=json.dumps(told), stdout=subprocess.PIPE, text=True, timeout=1800, check=True
        )
        figures: Figures = json.loads(done.stdout)
        stats = figures["stats"]
        if stats["first_request"] is not None:
            figures["served_s"] = round(stats["last_answer"] - stats["first_request"], 3)
        return figures

    @contextmanager
    def command(self, address: str, run: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
        """`sweet rollout RUN … --json` under way."""
        url = f"{address}/v1"
        command = [*self.options.under, sys.executable, "-m", "sweet", "rollout", str(run)]
        command += [*flags, "--agent-url", url, "--sim-url", url, "--json"]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        with subprocess.Popen(command, cwd=self.place, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes) as process:
            try:
                yield process
            finally:
                if process.returncode is None and process.poll() is None:
                    process.kill()

    def timed(self, address: str, run: Path, *flags: str) -> Figures:
        """Run the command to its end; its seconds before the first request and after the last answer."""
        began = time.monotonic()
        with self.command(address, run, *flags) as process:
            assert process.stdout is not None
            told = json.loads(process.stdout.read())
            _, status, used = os.wait4(process.pid, 0)
            ended = time.monotonic()
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"sweet rollout ended with {process.returncode}: {told}")
        stats = ask(address, "/stats")
        before, after = stats["first_request"] - began, ended - stats["last_answer"]
        return {
            "command_s": ended - began,
            "to_first_request_s": before,
            "after_last_answer_s": after,
            "overhead_s": before + after,
            "served_s": stats["last_answer"] - stats["first_request"],
            "cpu_s": used.ru_utime + used.ru_stime,
            "peak_rss_mib": used.ru_maxrss / 1024,
            "episodes": told["metrics"]["episodes"],
        }


def throughput(bench: Bench, draws: Draws) -> Figures:
    options = bench.options
    count, concurrency = options.dialogues, options.concurrency
    with bench.serving(draws) as address:
        ours = bench.client(address, draws, count, loop="stage", config={"concurrency": concurrency})
        theirs = bench.client(address, draws, count, loop="lockstep", batch=concurrency, threads=32)
    least = bound(draws, range(count), concurrency)
    _all_there(ours, count)
    return {
        "seconds": ours["seconds"],
        "bound_s": least,
        "ratio": ours["seconds"] / least,
        "list_s": listed(draws, range(count), concurrency),
        "served_s": ours["served_s"],
        "cpu_s": ours["cpu_s"],
        "latency_s": sum(draws.total(number) for number in range(count)),
        "late_ms": ours["stats"]["late_ms"],
        "dialogues_per_s": count / ours["seconds"],
        "lockstep_s": theirs["seconds"],
        "lockstep_cpu_s": theirs["cpu_s"],
        "lockstep_peak_under_way": theirs["stats"]["peak_under_way"],
        "lockstep_dialogues_per_s": count / theirs["seconds"],
        "over_lockstep": theirs["seconds"] / ours["seconds"],
    }


def cost(bench: Bench, draws: Draws) -> Figures:
    return {
        "plain": _cost(bench, draws),
        "token_ids": _cost(bench, draws, "--token-ids"),
        "open_2000": _memory(bench, Draws(draws.seed, 2.0, draws.sigma)),
    }


def _cost(bench: Bench, draws: Draws, *flags: str) -> Figures:
    count, concurrency = bench.options.cost_dialogues, 1000
    with bench.serving(draws, *flags) as address:
        told = bench.client(address, draws, count, loop="stage", config={"concurrency": concurrency})
    _all_there(told, count)
    requests = told["stats"]["requests"]
    return {
        "cpu_ms_per_turn": 1000 * told["cpu_s"] / told["turns"],
        "cpu_ms_per_request": 1000 * told["cpu_s"] / requests,
        "cpu_s": told["cpu_s"],
        "seconds": told["seconds"],
        "bound_s": bound(draws, range(count), concurrency),
        "turns": told["turns"],
        "requests": requests,
        "requests_per_s": requests / told["seconds"],
        "peak_rss_mib": told["peak_rss_mib"],
        "peak_under_way": told["stats"]["peak_under_way"],
        "peak_connections": told["stats"]["peak_connections"],
        "late_ms": told["stats"]["late_ms"],
        "server_cpu_s": told["stats"]["server_cpu_s"],
    }


def _memory(bench: Bench, draws: Draws) -> Figures:
    count = bench.options.open
    with bench.serving(draws) as address:
        told = bench.client(address, draws, count, loop="stage", config={"concurrency": count})
    _all_there(told, count)
    stats = told["stats"]
    return {
        "peak_rss_mib": told["peak_rss_mib"],
        "rss_before_mib": told["rss_before_mib"],
        "peak_under_way": stats["peak_under_way"],
        "peak_connections": stats["peak_connections"],
        "cpu_ms_per_turn": 1000 * told["cpu_s"] / told["turns"],
        "seconds": told["seconds"],
        "late_ms": stats["late_ms"],
    }


def faults(bench: Bench, draws: Draws) -> Figures:
    options = bench.options
    count, share = options.fault_dialogues, options.faults
    config = {"concurrency": options.concurrency, "deadline": options.deadline}
    told: Figures = {}
    for name, part in (("clean", 0.0), ("faulty", share)):
        with bench.serving(draws, "--faults", str(part), "--stall", str(options.stall)) as address:
            told[name] = bench.client(address, draws, count, faults=part, loop="stage", config=config)
    clean, faulty = told["clean"], told["faulty"]
    _all_there(clean, count)
    finished = faulty.get("episodes", 0) / count
    return {
        "throughput_share": finished * clean["seconds"] / faulty["seconds"],
        "finished": finished,
        "failed": faulty.get("failed"),
        "error": faulty.get("error"),
        "clean_s": clean["seconds"],
        "faulty_s": faulty["seconds"],
        "bound_s": bound(draws, range(count), options.concurrency),
        "faults": faulty["stats"]["faults"],
        "requests": faulty["stats"]["requests"],
        "late_ms": faulty["stats"]["late_ms"],
    }


def resume(bench: Bench, draws: Draws) -> Figures:
    """The run is made by a rollout that is killed at its first request, whose file is then filled."""
    options = bench.options
    missing, samples = 100, options.resume_samples
    tasks = bench.tasks(range((options.resume_rows + missing) // samples))
    flags = ["--tasks", str(tasks), "--agent", AGENT, "--sim", HUMAN, "--concurrency", str(options.concurrency)]
    flags += ["--samples", str(samples)]
    full, small = bench.path("full"), bench.path("small")
    with bench.serving(Draws(draws.seed, 1e6)) as address, bench.command(address, full, *flags) as begun:
        _until(lambda: ask(address, "/stats")["requests"] > 0)
        begun.kill()
    rows = fill(full, tasks, draws, samples, missing)
    os.sync()  # what is still to be written would compete with the reading
    size = sum(path.stat().st_size for path in full.rglob("*.jsonl"))
    with bench.serving(draws) as address:
        startup = bench.timed(address, small, *flags[:-2], "--num-tasks", str(missing))
        ask(address, "/reset")
        told = bench.timed(address, full, *flags)
    shutil.rmtree(full)
    return {
        "overhead_s": told["overhead_s"],
        "startup_s": startup["overhead_s"],
        "reading_s": told["overhead_s"] - startup["overhead_s"],
        "to_first_request_s": told["to_first_request_s"],
        "after_last_answer_s": told["after_last_answer_s"],
        "startup_to_first_request_s": startup["to_first_request_s"],
        "command_s": told["command_s"],
        "served_s": told["served_s"],
        "cpu_s": told["cpu_s"],
        "peak_rss_mib": told["peak_rss_mib"],
        "rows": rows,
        "mib": size / 2**20,
        "episodes": told["episodes"],
    }


def _until(done: Callable[[], bool], seconds: float = 120.0) -> None:
    ends = time.monotonic() + seconds
    while not done():
        if time.monotonic() > ends:
            raise TimeoutError("the rollout sent no request")
        time.sleep(0.1)


def _all_there(told: Figures, count: int) -> None:
    if told.get("episodes") != count:
        raise SystemExit(f"not all of {count} dialogues were played: {told}")


MODES: dict[str, Callable[[Bench, Draws], Figures]] = {
    "throughput": throughput,
    "cost": cost,
    "resume": resume,
    "faults": faults,
}

GOALS: dict[str, dict[str, str]] = {
    "throughput": {"ratio": "<= 1.15", "over_lockstep": ">= 6"},
    "cost": {"plain.cpu_ms_per_turn": "<= 2.5", "open_2000.peak_rss_mib": "< 1024"},
    "resume": {"overhead_s": "< 5"},
    "faults": {"finished": "1", "throughput_share": ">= 0.7"},
}


def median(rounds: list[Any]) -> Any:
    """The median of each number in figures of the same form; what are no numbers is given for each round."""
    first = rounds[0]
    if isinstance(first, dict):
        return {key: median([figures[key] for figures in rounds]) for key in first}
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in rounds):
        return round(statistics.median(rounds), 4)
    return first if len(rounds) == 1 else rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODES, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dialogues", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=200, help="of all but cost")
    parser.add_argument("--cost-dialogues", type=int, default=2000)
    parser.add_argument("--open", type=int, default=2000, help="dialogues open at once where memory is measured")
    parser.add_argument("--resume-rows", type=int, default=100_000)
    parser.add_argument("--resume-samples", type=int, default=10, help="dialogues a task of the resumed run")
    parser.add_argument("--faults", type=float, default=0.1, help="share of the requests")
    parser.add_argument("--fault-dialogues", type=int, default=2000)
    parser.add_argument("--stall", type=float, default=300.0, help="seconds")
    parser.add_argument("--deadline", type=float, default=60.0, help="the client's, where there are faults; seconds")
    parser.add_argument("--under", type=str.split, default=[], help="a profiler's command that the clients run under")
    options = parser.parse_args()
    told: Figures = {"options": vars(options), "cores": os.cpu_count(), "load_before": os.getloadavg()}
    with tempfile.TemporaryDirectory(prefix="rollout-benchmark-") as place:
        bench = Bench(options, Path(place))
        for mode in options.only or MODES:
            began = time.monotonic()
            rounds = [MODES[mode](bench, Draws(options.seed + number)) for number in range(options.rounds)]
            took = round(time.monotonic() - began, 1)
            told[mode] = {**median(rounds), "goals": GOALS[mode], "took_s": took, "load": os.getloadavg()}
    print(json.dumps({**told, "load_after": os.getloadavg()}))


if __name__ == "__main__":
    main()
