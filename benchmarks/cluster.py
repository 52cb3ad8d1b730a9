"""Compare scoring on a local Ray cluster of three nodes with the pool of jails of one process. Prints JSON.

    python -m benchmarks.cluster [--answers 5000] [--rounds 3] [--kills 10] [--sizes 1000,10000,50000]

`ratio`: time of the cluster / time of the local pool for the same answers, from the first answer to the last score,
with the same number of jails; the median of pairs in alternating order. The time to open is reported separately.
`kills`: a node is killed at a random moment of each run; every answer must have exactly one score, the same as without
kills. `sizes`: seconds per answer, and the peak memory of this process. Nodes and driver share the machine's cores.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweet.sandbox.tiers import WORKERS_A_CORE
from sweet.scoring.on_ray import open_ray_scorer
from sweet.stages.base import Silent
from sweet.tasks.micro.generator import load
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Score, ScoringRequest, TrajectoryScorer
from sweet.tasks.trajectory import Trajectory, Turn

NODES = 3


def dialogues(count: int) -> Iterator[Trajectory]:
    """Yield distinct answers, of which every third is correct."""
    tasks = load("train")
    for number in range(count):
        task = tasks[number % len(tasks)]
        answer = f"{task.ground_truth}{'' if number % 3 == 0 else ' + 1'}  # {number}"
        request = Turn(role="user", content=task.problem_description)
        yield Trajectory(
            id=f"{task.id}-{number}",
            task=task,
            dialogue_history=(request, Turn(role="assistant", content=f"I WANT TO ANSWER:\n{answer}")),
            answer=answer,
            sample=number // len(tasks),
        )


def scored(scorer: TrajectoryScorer, count: int) -> tuple[float, list[Score]]:
    """Return the seconds and the scores."""
    started = time.perf_counter()
    scores = [score for _, score in scorer.score(dialogues(count))]
    return time.perf_counter() - started, scores


def pooled(request: ScoringRequest, count: int) -> dict[str, Any]:
    """Score with the pool of jails of this process."""
    started = time.perf_counter()
    with task_kind("code").open_scorer(request) as scorer:
        opened = time.perf_counter() - started
        seconds, scores = scored(scorer, count)
    return {"opening": opened, "seconds": seconds, "scores": scores}


class Comparison:
    """The cluster and the local pool, each opened again for every run."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self.cluster = cluster
        self.request = ScoringRequest(run=folder, say=Silent().say)

    def local(self, count: int) -> dict[str, Any]:
        """Score in a new process, like the nodes: without results of earlier runs."""
        request = replace(self.request, workers=NODES * WORKERS_A_CORE)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(pooled, request, count).result()

    def spread(self, count: int, kill: float | None = None) -> dict[str, Any]:
        """Score on the cluster. With `kill` a fourth node takes part and is killed after this many seconds."""
        extra = None if kill is None else self.cluster.add_node(num_cpus=1)
        self.cluster.wait_for_nodes()
        started = time.perf_counter()
        with open_ray_scorer(self.cluster.address, "code", self.request) as scorer:
            opened = time.perf_counter() - started
            timer = threading.Timer(kill or 0, self._kill, (extra,))
            timer.start()
            seconds, scores = scored(scorer, count)
            timer.join()
            nodes = scorer.environment["nodes"]
        return {"opening": opened, "seconds": seconds, "scores": scores, "nodes": nodes}

    def _kill(self, node: Any) -> None:
        if node is not None:
            self.cluster.remove_node(node, allow_graceful=False)


def measure_ratio(comparison: Comparison, answers: int, rounds: int) -> dict[str, Any]:
    pairs, same = [], True
    for number in range(rounds):
        order = ("local", "spread") if number % 2 == 0 else ("spread", "local")
        result = {name: getattr(comparison, name)(answers) for name in order}
        same = same and result["local"].pop("scores") == result["spread"].pop("scores")
        pairs.append((result["local"], result["spread"]))
    ratios = [spread["seconds"] / local["seconds"] for local, spread in pairs]
    return {
        "answers": answers,
        "jails": NODES * WORKERS_A_CORE,
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "local_seconds": round(statistics.median(local["seconds"] for local, _ in pairs), 2),
        "spread_seconds": round(statistics.median(spread["seconds"] for _, spread in pairs), 2),
        "spread_opening": round(statistics.median(spread["opening"] for _, spread in pairs), 2),
        "same_scores": same,
    }


def measure_kills(comparison: Comparison, answers: int, kills: int) -> dict[str, Any]:
    whole = comparison.spread(answers)
    rng = random.Random(0)
    runs = []
    for _ in range(kills):
        moment = rng.uniform(0.0, whole["seconds"])
        result = comparison.spread(answers, moment)
        ids = [score.id for score in result["scores"]]
        runs.append(
            {
                "moment": round(moment, 2),
                "seconds": round(result["seconds"], 2),
                "rows": len(ids),
                "doubled": len(ids) - len(set(ids)),
                "same": result["scores"] == whole["scores"],
                "nodes": len(result["nodes"]),
            }
        )
    return {"answers": answers, "without": round(whole["seconds"], 2), "runs": runs}


def measure_sizes(comparison: Comparison, sizes: list[int]) -> list[dict[str, Any]]:
    result = []
    for size in sizes:
        with open_ray_scorer(comparison.cluster.address, "code", comparison.request) as scorer:
            started = time.perf_counter()
            count = sum(1 for _ in scorer.score(dialogues(size)))
            seconds = time.perf_counter() - started
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        result.append({"answers": count, "ms_an_answer": round(1000 * seconds / count, 3), "memory_mb": memory})
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--kill-answers", type=int, default=1500)
    parser.add_argument("--sizes", default="1000,10000,50000")
    options = parser.parse_args()
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory() as folder:
        os.environ["SWEET_CACHE"] = str(Path(folder, "cache"))
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        for _ in range(NODES - 1):
            cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        comparison = Comparison(cluster, Path(folder))
        comparison.local(2000)  # references are run once and cached afterwards
        result = {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "compare": measure_ratio(comparison, options.answers, options.rounds),
            "kills": measure_kills(comparison, options.kill_answers, options.kills) if options.kills else None,
            "sizes": measure_sizes(comparison, [int(size) for size in options.sizes.split(",") if size]),
        }
        cluster.shutdown()  # type: ignore[no-untyped-call]
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
