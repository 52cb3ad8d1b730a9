"""Measure the overhead of `sweet rollout` against a mock server with known latencies.

    python -m benchmarks.rollout [--only throughput|cost|resume|faults] [--rounds 3]      (from the project's folder)

Prints one JSON object: medians over the rounds (round r draws with `--seed` + r), and the goals. The server
(tests/rollouts/mock_server.py) runs in a separate process, and so does each measured client
(benchmarks/rollout_client.py), which finishes its imports before the clock starts. Each result contains `late_ms`, the
delay of the server's answers behind their schedule: if it is not small, the machine was busy.

throughput  400 dialogues at concurrency 200. `bound_s` = max(longest dialogue's latencies, sum of all / concurrency);
            `list_s` is the time of a client without any overhead that plays the tasks in their order. `lockstep` is the
            published scheduling (benchmarks/lockstep.py) in batches of 200 on the same server.
cost        CPU (user and system) of the client process per turn at concurrency 1,000. A turn is one request of the
            agent and, unless it is the dialogue's last, one of the human. Once with plain answers and once with token
            ids and log-probabilities, as vLLM returns them on request. Then the peak memory with 2,000 concurrent
            dialogues (with latencies of 2 s).
resume      `sweet rollout RUN … --json` on a run with 100,000 finished dialogues and 100 missing ones. `overhead_s` is
            its time until the first new request reaches the server and from the last answer until it exits;
            `startup_s` is the same for a new run with 100 dialogues; the difference is the time to read the file,
            which is in the system's cache.
faults      a tenth of the requests fails (alternately 429, 500, 503, a reset, a stall of `--stall` seconds), against
            the same dialogues without faults. `throughput_share` counts the dialogues that finished in the same call.
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
Metrics = dict[str, Any]


def bound(draws: Draws, dialogues: Iterable[int], concurrency: int) -> float:
    """Return a lower bound of the seconds of any client, for any order of the dialogues."""
    totals = [draws.total(number) for number in dialogues]
    return max(max(totals), sum(totals) / concurrency)


def listed(draws: Draws, dialogues: Iterable[int], concurrency: int) -> float:
    """Return the seconds of list scheduling: the next dialogue starts when one of `concurrency` slots is free."""
    free = [0.0] * concurrency
    for number in dialogues:
        heapq.heapreplace(free, free[0] + draws.total(number))
    return max(free)


def warm_task(draws: Draws, faults: float) -> int:
    """Return a short dialogue without faults."""
    return next(
        number
        for number in WARM
        if 1 < draws.turns(number) < 4
        and draws.total(number) < 3 * draws.mean
        and all(draws.share("fault", number, turn, role, 1) >= faults for turn, role in draws.requests(number))
    )


class Runner:
    """Starts servers and clients with the given options, in one folder."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.count = 0

    def path(self, name: str) -> Path:
        """Return an unused path."""
        self.count += 1
        return self.folder / f"{self.count}-{name}"

    def tasks(self, numbers: Iterable[int]) -> Path:
        path = self.path("tasks.jsonl")
        path.write_text("".join(json.dumps(task_row(number)) + "\n" for number in numbers))
        return path

    @contextmanager
    def serving(self, draws: Draws, *flags: str) -> Iterator[str]:
        """Start a server and yield its address."""
        command = [sys.executable, "-m", "tests.rollouts.mock_server", "--seed", str(draws.seed)]
        command += ["--mean", str(draws.mean), "--sigma", str(draws.sigma), *flags]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                yield server.stdout.readline().strip()
            finally:
                server.kill()

    def client(self, address: str, draws: Draws, count: int, *, faults: float = 0.0, **spec: Any) -> Metrics:
        """Play the dialogues 0 to `count` - 1 in a client process and return its metrics."""
        request = {
            "address": address,
            "run": str(self.path("run")),
            "tasks": str(self.tasks(range(count))),
            "warm_tasks": str(self.tasks([warm_task(draws, faults)])),
            **spec,
        }
        command = [*self.options.under, sys.executable, "-m", "benchmarks.rollout_client"]
        process = subprocess.run(
            command, cwd=ROOT, input=json.dumps(request), stdout=subprocess.PIPE, text=True, timeout=1800, check=True
        )
        metrics: Metrics = json.loads(process.stdout)
        stats = metrics["stats"]
        if stats["first_request"] is not None:
            metrics["served_s"] = round(stats["last_answer"] - stats["first_request"], 3)
        return metrics

    @contextmanager
    def command(self, address: str, run: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
        """Start `sweet rollout RUN … --json`; it is killed at the end of the block if it is still running."""
        url = f"{address}/v1"
        command = [*self.options.under, sys.executable, "-m", "sweet", "rollout", str(run)]
        command += [*flags, "--agent-url", url, "--sim-url", url, "--json"]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        with subprocess.Popen(
            command, cwd=self.folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes
        ) as process:
            try:
                yield process
            finally:
                if process.returncode is None and process.poll() is None:
                    process.kill()

    def timed(self, address: str, run: Path, *flags: str) -> Metrics:
        """Run the command. Return its cost, and its seconds before the first request and after the last answer."""
        started = time.monotonic()
        with self.command(address, run, *flags) as process:
            assert process.stdout is not None
            results = json.loads(process.stdout.read())
            _, status, used = os.wait4(process.pid, 0)
            ended = time.monotonic()
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"sweet rollout exited with {process.returncode}: {results}")
        stats = ask(address, "/stats")
        before, after = stats["first_request"] - started, ended - stats["last_answer"]
        return {
            "command_s": ended - started,
            "to_first_request_s": before,
            "after_last_answer_s": after,
            "overhead_s": before + after,
            "served_s": stats["last_answer"] - stats["first_request"],
            "cpu_s": used.ru_utime + used.ru_stime,
            "peak_rss_mib": used.ru_maxrss / 1024,
            "episodes": results["metrics"]["episodes"],
        }


def throughput(runner: Runner, draws: Draws) -> Metrics:
    options = runner.options
    count, concurrency = options.dialogues, options.concurrency
    with runner.serving(draws) as address:
        result = runner.client(address, draws, count, loop="stage", config={"concurrency": concurrency})
        baseline = runner.client(address, draws, count, loop="lockstep", batch=concurrency, threads=32)
    least = bound(draws, range(count), concurrency)
    _check_complete(result, count)
    return {
        "seconds": result["seconds"],
        "bound_s": least,
        "ratio": result["seconds"] / least,
        "list_s": listed(draws, range(count), concurrency),
        "served_s": result["served_s"],
        "cpu_s": result["cpu_s"],
        "latency_s": sum(draws.total(number) for number in range(count)),
        "late_ms": result["stats"]["late_ms"],
        "dialogues_per_s": count / result["seconds"],
        "lockstep_s": baseline["seconds"],
        "lockstep_cpu_s": baseline["cpu_s"],
        "lockstep_peak_under_way": baseline["stats"]["peak_under_way"],
        "lockstep_dialogues_per_s": count / baseline["seconds"],
        "over_lockstep": baseline["seconds"] / result["seconds"],
    }


def cost(runner: Runner, draws: Draws) -> Metrics:
    return {
        "plain": _cost(runner, draws),
        "token_ids": _cost(runner, draws, "--token-ids"),
        "open_2000": _memory(runner, Draws(draws.seed, 2.0, draws.sigma)),
    }


def _cost(runner: Runner, draws: Draws, *flags: str) -> Metrics:
    count, concurrency = runner.options.cost_dialogues, 1000
    with runner.serving(draws, *flags) as address:
        results = runner.client(address, draws, count, loop="stage", config={"concurrency": concurrency})
    _check_complete(results, count)
    requests = results["stats"]["requests"]
    return {
        "cpu_ms_per_turn": 1000 * results["cpu_s"] / results["turns"],
        "cpu_ms_per_request": 1000 * results["cpu_s"] / requests,
        "cpu_s": results["cpu_s"],
        "seconds": results["seconds"],
        "bound_s": bound(draws, range(count), concurrency),
        "turns": results["turns"],
        "requests": requests,
        "requests_per_s": requests / results["seconds"],
        "peak_rss_mib": results["peak_rss_mib"],
        "peak_under_way": results["stats"]["peak_under_way"],
        "peak_connections": results["stats"]["peak_connections"],
        "late_ms": results["stats"]["late_ms"],
        "server_cpu_s": results["stats"]["server_cpu_s"],
    }


def _memory(runner: Runner, draws: Draws) -> Metrics:
    count = runner.options.open
    with runner.serving(draws) as address:
        results = runner.client(address, draws, count, loop="stage", config={"concurrency": count})
    _check_complete(results, count)
    stats = results["stats"]
    return {
        "peak_rss_mib": results["peak_rss_mib"],
        "rss_before_mib": results["rss_before_mib"],
        "peak_under_way": stats["peak_under_way"],
        "peak_connections": stats["peak_connections"],
        "cpu_ms_per_turn": 1000 * results["cpu_s"] / results["turns"],
        "seconds": results["seconds"],
        "late_ms": stats["late_ms"],
    }


def faults(runner: Runner, draws: Draws) -> Metrics:
    options = runner.options
    count, share = options.fault_dialogues, options.faults
    config = {"concurrency": options.concurrency, "deadline": options.deadline}
    results: Metrics = {}
    for name, part in (("clean", 0.0), ("faulty", share)):
        with runner.serving(draws, "--faults", str(part), "--stall", str(options.stall)) as address:
            results[name] = runner.client(address, draws, count, faults=part, loop="stage", config=config)
    clean, faulty = results["clean"], results["faulty"]
    _check_complete(clean, count)
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


def resume(runner: Runner, draws: Draws) -> Metrics:
    """Resume a run whose rollout was killed at its first request and whose file was filled afterwards."""
    options = runner.options
    missing, samples = 100, options.resume_samples
    tasks = runner.tasks(range((options.resume_rows + missing) // samples))
    flags = ["--tasks", str(tasks), "--agent", AGENT, "--sim", HUMAN, "--concurrency", str(options.concurrency)]
    flags += ["--samples", str(samples)]
    full, small = runner.path("full"), runner.path("small")
    with runner.serving(Draws(draws.seed, 1e6)) as address, runner.command(address, full, *flags) as process:
        _until(lambda: ask(address, "/stats")["requests"] > 0)
        process.kill()
    rows = fill(full, tasks, draws, samples, missing)
    os.sync()  # pending writes would compete with the reading
    size = sum(path.stat().st_size for path in full.rglob("*.jsonl"))
    with runner.serving(draws) as address:
        startup = runner.timed(address, small, *flags[:-2], "--num-tasks", str(missing))
        ask(address, "/reset")
        results = runner.timed(address, full, *flags)
    shutil.rmtree(full)
    return {
        "overhead_s": results["overhead_s"],
        "startup_s": startup["overhead_s"],
        "reading_s": results["overhead_s"] - startup["overhead_s"],
        "to_first_request_s": results["to_first_request_s"],
        "after_last_answer_s": results["after_last_answer_s"],
        "startup_to_first_request_s": startup["to_first_request_s"],
        "command_s": results["command_s"],
        "served_s": results["served_s"],
        "cpu_s": results["cpu_s"],
        "peak_rss_mib": results["peak_rss_mib"],
        "rows": rows,
        "mib": size / 2**20,
        "episodes": results["episodes"],
    }


def _until(done: Callable[[], bool], seconds: float = 120.0) -> None:
    ends = time.monotonic() + seconds
    while not done():
        if time.monotonic() > ends:
            raise TimeoutError("the rollout sent no request")
        time.sleep(0.1)


def _check_complete(results: Metrics, count: int) -> None:
    if results.get("episodes") != count:
        raise SystemExit(f"not all of the {count} dialogues were played: {results}")


MODES: dict[str, Callable[[Runner, Draws], Metrics]] = {
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
    """Return the median of each number in metrics of the same form; other values are listed for each round."""
    first = rounds[0]
    if isinstance(first, dict):
        return {key: median([metrics[key] for metrics in rounds]) for key in first}
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in rounds):
        return round(statistics.median(rounds), 4)
    return first if len(rounds) == 1 else rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODES, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dialogues", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=200, help="concurrency of all modes but cost")
    parser.add_argument("--cost-dialogues", type=int, default=2000)
    parser.add_argument("--open", type=int, default=2000, help="concurrent dialogues of the memory measurement")
    parser.add_argument("--resume-rows", type=int, default=100_000)
    parser.add_argument("--resume-samples", type=int, default=10, help="dialogues per task of the resumed run")
    parser.add_argument("--faults", type=float, default=0.1, help="share of the requests that fail")
    parser.add_argument("--fault-dialogues", type=int, default=2000)
    parser.add_argument("--stall", type=float, default=300.0, help="seconds")
    parser.add_argument("--deadline", type=float, default=60.0, help="deadline in seconds of the client with faults")
    parser.add_argument("--under", type=str.split, default=[], help="command of a profiler that runs the clients")
    options = parser.parse_args()
    results: Metrics = {"options": vars(options), "cores": os.cpu_count(), "load_before": os.getloadavg()}
    with tempfile.TemporaryDirectory(prefix="rollout-benchmark-") as folder:
        runner = Runner(options, Path(folder))
        for mode in options.only or MODES:
            started = time.monotonic()
            rounds = [MODES[mode](runner, Draws(options.seed + number)) for number in range(options.rounds)]
            seconds = round(time.monotonic() - started, 1)
            results[mode] = {**median(rounds), "goals": GOALS[mode], "took_s": seconds, "load": os.getloadavg()}
    print(json.dumps({**results, "load_after": os.getloadavg()}))


if __name__ == "__main__":
    main()
