"""Estimate the paper's full recipe: operations, GPU-hours, memory and bytes at 8B and 70B parameters, at one, ten and a
hundred times the size.

    python -m docs.tools.planning > plan.json                 the plan, from docs.tools.planning_inputs
    python -m docs.tools.planning --measure RUN --measure RUN  measure the rows of runs on this machine
    python -m docs.tools.planning_page                        docs/planning.md's tables from both

Nothing is run: every number follows from `docs.tools.planning_inputs` by the formulas here, from the models' shapes by
`sweet.learn.estimate`, and from rows of the assumed sizes, which are written in the format of the stages. A forward
pass needs 2 operations per parameter and token, training 6 (arXiv 2001.08361, section 2.1).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from docs.tools.planning_inputs import INPUTS, of
from sweet.learn.batches import GPU_TOKENS
from sweet.learn.estimate import HALF, Shape, buffers, casts, forward_memory, model_states
from sweet.learn.zero import ZeroSettings
from sweet.render.store import SCREENSHOTS
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.run import Run
from sweet.stages.rates import HOUR, finished
from sweet.stages.rows import Candidate, CandidateRow, Pair
from sweet.tasks.trajectory import Trajectory, dump

MEASURED = Path("benchmarks/results/planning.json")
"""The output of `--measure`."""

SCALES = (1, 10, 100)
DEVICES = (8, 16, 32, 64, 128, 256)
FORWARD, TRAINED = 2, 6
OBJECT = 36
"""Bytes of a token id in a Python tuple: a pointer and an int."""


@dataclass(frozen=True)
class Model:
    parameters: float
    shape: Shape


MODELS = {
    "8B": Model(8.03e9, Shape(4096, 32, 4096, 1024, 14336, 128256)),
    "70B": Model(70.6e9, Shape(8192, 80, 8192, 1024, 28672, 128256)),
}
"""The configurations of Llama 3.1."""


@dataclass(frozen=True)
class Dialogues:
    """The sizes of one kind's dialogues, in tokens unless stated otherwise."""

    kind: str
    scale: int = 1

    def own(self, name: str) -> float:
        return of(f"{self.kind} {name}")

    @property
    def count(self) -> float:
        return self.scale * self.own("dialogues")

    @property
    def turns(self) -> float:
        return self.own("turns")

    @property
    def exchange(self) -> float:
        """Tokens that a turn adds: the replies of agent and human."""
        return self.own("tokens a turn") + self.own("tokens of the human")

    @property
    def context(self) -> float:
        """Tokens of a whole dialogue."""
        return of("tokens of the opening") + self.turns * self.exchange

    @property
    def prompts(self) -> float:
        """Tokens of the prompts of all turns, each counted from its beginning."""
        return self.turns * of("tokens of the opening") + self.exchange * self.turns * (self.turns - 1) / 2

    @property
    def hidden(self) -> float:
        return of("tokens of the reference") if self.kind == "code" else self.own("tokens a turn")

    @property
    def seen(self) -> float:
        """Tokens that the human reads over a dialogue: reference, dialogue so far, and both screenshots of a page."""
        pictures = 2 * of("tokens of a screenshot") if self.kind == "html" else 0
        return self.prompts + self.turns * (self.own("tokens a turn") + self.hidden + pictures)

    @property
    def ranked(self) -> float:
        """The number of ranked turns."""
        return self.count * self.turns * of("fraction")

    @property
    def preferences(self) -> float:
        return self.count * self.own("preferences a dialogue")


def work(kind: str, model: Model, scale: int = 1) -> dict[str, dict[str, float]]:
    """Return the tokens that the models of each stage read, write and train, and the operations.

    Prompts are counted without a prefix cache; prefix trees are counted as the program computes them.
    """
    d, n = Dialogues(kind, scale), model.parameters
    reply = d.own("tokens a turn")
    human = d.own("tokens of the human")
    prompt = d.context / 2 + d.hidden
    judged = d.ranked * (prompt + (1 + of("candidates")) * reply)
    pairs = d.ranked * of("pairs")
    preference = 2 * (d.context + d.hidden)
    passes = {
        "rollout, agent": (n, d.count * d.prompts, d.count * d.turns * reply, 0.0),
        "rollout, human": (of("human"), d.count * d.seen, d.count * d.turns * human, 0.0),
        "train-critic": (n, d.preferences * preference, 0.0, d.own("epochs") * d.preferences * preference),
        "rank, agent": (n, d.ranked * d.context / 2, d.ranked * of("candidates") * reply, 0.0),
        "rank, critic and reference": (n, 2 * judged, 0.0, 0.0),
        "train-actor": (n, pairs * (d.context / 2 + 2 * reply), 0.0, pairs * (d.context / 2 + 2 * reply)),
    }
    return {name: _stage(*figures) for name, figures in passes.items()}


def _stage(parameters: float, read: float, written: float, trained: float) -> dict[str, float]:
    flops = [FORWARD * parameters * read, FORWARD * parameters * written, TRAINED * parameters * trained]
    ways = ("reading", "writing", "training")
    seconds = sum(count / (of("peak") * of(way)) for count, way in zip(flops, ways, strict=True))
    return {
        "tokens_read": read,
        "tokens_written": written,
        "tokens_trained": trained,
        "flops": sum(flops),
        "gpu_hours": seconds / HOUR,
    }


def memory(model: Model) -> dict[str, Any]:
    """Return the bytes of one GPU in full fine-tuning under ZeRO 3, and of a ranking critic.

    `devices` is the smallest number of `DEVICES` that fits; None if none does.
    """
    n, positions = round(model.parameters), GPU_TOKENS
    forward = forward_memory(model.shape, positions, positions, mixed=True, longest=positions, checkpointing=True)
    fixed = {
        "casts": casts(model.shape, n, mixed=True, checkpointing=True),
        "activations": sum(forward.values()),
        "buffers": buffers(model.shape, n, ZeroSettings(3)),
    }

    def states(devices: int) -> float:
        bytes_of = model_states(n, n, ZeroSettings(3, "none"), devices)
        return bytes_of.weights + bytes_of.gradients + bytes_of.optimizer

    fits = (devices for devices in DEVICES if states(devices) + sum(fixed.values()) <= of("memory"))
    devices = next(fits, None)
    shape = model.shape
    return {
        "states": states(1),
        **fixed,
        "devices": devices,
        "of_one": states(devices or DEVICES[-1]) + sum(fixed.values()),
        "rank": 2 * HALF * n,
        "serve": HALF * n,
        "serve_devices": 2 ** math.ceil(math.log2(max(2 * HALF * n / of("memory"), 1))),
        "kept_token": 2 * HALF * shape.layers * shape.keys,
        "checkpoint": states(1) - 4 * n,
        "step_traffic": 3 * 4 * n,
        "traffic": {kind: longest_steps(Dialogues(kind)) * 3 * 4 * n for kind in ("code", "html")},
    }


def rows(kind: str) -> dict[str, float]:
    """Return the bytes of one row of each kind, which the program writes at the assumed sizes."""
    d = Dialogues(kind)

    def text(tokens: float) -> str:
        return "x" * round(tokens * of("characters a token"))

    def ids(tokens: float) -> list[int]:
        return [64_000] * round(tokens)

    reply, human, task = d.own("tokens a turn"), d.own("tokens of the human"), of("tokens of the opening")
    history: list[dict[str, Any]] = [{"role": "user", "content": text(task)}]
    for _ in range(round(d.turns)):
        spoken = {"content": text(reply), "output": text(reply), "token_ids": ids(reply)}
        history.append({"role": "assistant", **spoken, "finish_reason": "stop", "sampling_seed": 2**31})
        history.append({"role": "user", "content": text(human)})
    history[-2]["prompt_token_ids"] = ids(d.context)
    tests = {f"test{number}": text(10) for number in range(round(d.own("tests")))}
    problem = {"id": "task-00000", "problem_description": text(task), "ground_truth": text(d.hidden)}
    dialogue = {"id": "task-00000-s0-r0", "task": {**problem, "test_cases": tests}, "dialogue_history": history[:-1]}
    trajectory = Trajectory.model_validate({**dialogue, "answer": text(reply)})
    observation = trajectory.observation(2 * (round(d.turns) // 2) - 1, text(task))
    one = Candidate(text=text(reply), token_ids=tuple(ids(reply)), advantage=-0.123456, logprob=-1.234567, tokens=9)
    named = {"trajectory_id": trajectory.id, "task_id": trajectory.task_id, "turn": 1, "observation": observation}
    ranked = CandidateRow.model_validate({**named, "candidates": [one] * round(of("candidates")), "taken": one})
    sides = {f"{side}{name}": value for side in ("chosen", "rejected") for name, value in _side(one).items()}
    pair = Pair.model_validate({"id": "task-00000-s0-r0-t1-p1", **named, **sides})
    return {"rollouts": _size(dump(trajectory)), "candidates": _size(ranked), "pairs": _size(pair)}


def _side(one: Candidate) -> dict[str, Any]:
    return {"": one.text, "_token_ids": one.token_ids, "_ended": True, "_advantage": one.advantage}


def _size(row: Any) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        with JsonlWriter(path) as writer:
            writer.write(row)
        return path.stat().st_size


def data(kind: str, measured: dict[str, Any], scale: int = 1) -> dict[str, float]:
    """Return the bytes and files that the stages write, and the core-hours of work without a GPU."""
    d, size = Dialogues(kind, scale), rows(kind)
    references = min(d.count, scale * d.own("tasks"))
    pictures = d.count * d.turns + references if kind == "html" else 0.0
    shot = measured["screenshot"]
    shown, pictured = (2 * of("tokens of a screenshot"), 2 * shot["png"] * 4 / 3) if kind == "html" else (0.0, 0.0)
    each = measured["seconds"]["screenshot"] if kind == "html" else measured["seconds"]["answer"]
    return {
        "rollouts": d.count * size["rollouts"],
        "candidates": d.ranked * size["candidates"],
        "pairs": d.ranked * of("pairs") * size["pairs"],
        "screenshots": pictures,
        "screenshot_bytes": pictures * (shot["png"] + shot["json"]),
        "files": 2 * pictures,
        "sent": d.count * ((d.prompts + d.seen - d.turns * shown) * of("characters a token") + d.turns * pictured),
        "core_hours": measured["cores"] * each * (pictures or d.count) / HOUR,
    }


def longest_steps(d: Dialogues) -> float:
    """Return the steps of the longer training, each of one micro-batch per GPU."""
    return max(d.preferences * d.own("epochs"), d.ranked * of("pairs")) / of("batch")


def limits(kind: str, name: str, measured: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return how each quantity compares with a limit of the program or of machines.

    `full_at` is the scale that reaches the limit (1 if it is exceeded at once, None if never), and `breaks_at` the
    first of `SCALES` that exceeds it.
    """
    model, gpu = MODELS[name], memory(MODELS[name])

    def at(scale: int) -> dict[str, tuple[float, float]]:
        d, stored, stages = Dialogues(kind, scale), data(kind, measured, scale), work(kind, model, scale)
        played = stages["rollout, agent"]["gpu_hours"] + stages["rollout, human"]["gpu_hours"]
        longest = max(stages[stage]["gpu_hours"] for stage in ("train-critic", "train-actor"))
        pool = 2 * d.preferences * (d.context + d.hidden) * OBJECT
        ids = d.count * (d.turns * d.own("tokens a turn") + d.context)
        text = stored["rollouts"]
        judging = stages["rank, critic and reference"]["gpu_hours"]
        candidates = d.ranked * (1 + of("candidates")) * d.own("tokens a turn")
        return {
            "training step": (gpu["of_one"], of("memory")),
            "ranking critic": (gpu["rank"], of("memory")),
            "rollout hours": (played / of("node"), of("patience")),
            "core hours": (stored["core_hours"] / of("cores"), of("patience")),
            "training hours": (longest / of("batch"), of("patience")),
            "network hours": (longest_steps(d) * gpu["step_traffic"] / of("network") / HOUR, of("patience")),
            "ranking hours": (judging, of("patience")),
            "training pool": (of("node") * pool, of("host memory")),
            "dialogues in memory": (text + ids * OBJECT, of("host memory")),
            "candidates in memory": (stored["candidates"] + candidates * OBJECT, of("host memory")),
            "disk": (text + stored["candidates"] + stored["pairs"] + stored["screenshot_bytes"], of("disk")),
            "files": (stored["files"], of("files")),
        }

    by_scale = {scale: at(scale) for scale in SCALES}
    return {
        what: {
            "limit": by_scale[1][what][1],
            "values": {scale: by_scale[scale][what][0] for scale in SCALES},
            "full_at": _full_at(*by_scale[1][what], grows=by_scale[1][what][0] < by_scale[SCALES[-1]][what][0]),
            "breaks_at": next((s for s in SCALES if by_scale[s][what][0] > by_scale[s][what][1]), None),
        }
        for what in by_scale[1]
    }


def _full_at(value: float, limit: float, *, grows: bool) -> float | None:
    return max(limit / value, 1.0) if grows else 1.0 if value > limit else None


def plan(measured: dict[str, Any]) -> dict[str, Any]:
    """Return the whole plan as JSON types."""
    return {
        "inputs": {name: asdict(one) for name, one in INPUTS.items()},
        "measured": measured,
        "rows": {kind: rows(kind) for kind in ("code", "html")},
        "memory": {name: memory(model) for name, model in MODELS.items()},
        "work": {kind: {name: work(kind, model) for name, model in MODELS.items()} for kind in ("code", "html")},
        "data": {kind: {str(scale): data(kind, measured, scale) for scale in SCALES} for kind in ("code", "html")},
        "limits": {kind: {name: limits(kind, name, measured) for name in MODELS} for kind in ("code", "html")},
    }


def measure(paths: list[Path], cores: int) -> dict[str, Any]:
    """Measure small runs: bytes per row of each artifact and per screenshot, seconds per answer and per screenshot."""
    measured: dict[str, Any] = {"cores": cores, "rows": {}, "seconds": {}}
    for path in paths:
        manifest = Run.open(path).manifest()
        own = measured["rows"].setdefault(manifest.task, {})
        for artifact in manifest.artifacts:
            if artifact.rows and artifact.bytes and artifact.rows >= own.get(artifact.kind, {"rows": 0})["rows"]:
                own[artifact.kind] = {"rows": artifact.rows, "bytes": artifact.bytes}
        shots = sorted((path / SCREENSHOTS).rglob("*.png"))
        spans = {stage: finished(manifest, path, stage) for stage in ("rollout", "eval")}
        if shots:
            sizes = {suffix: [s.with_suffix(f".{suffix}").stat().st_size for s in shots] for suffix in ("png", "json")}
            measured["screenshot"] = {suffix: round(sum(sizes_of) / len(shots)) for suffix, sizes_of in sizes.items()}
            seconds = sum(past.seconds or 0.0 for pasts in spans.values() for past in pasts)
            measured["seconds"]["screenshot"] = round(seconds / len(shots), 4)
        elif spans["eval"]:
            most = max(spans["eval"], key=lambda past: past.rows or 0)
            measured["seconds"]["answer"] = round((most.seconds or math.nan) / (most.rows or math.nan), 6)
    return measured


def read_measured(root: Path) -> dict[str, Any]:
    measured: dict[str, Any] = json.loads((root / MEASURED).read_text(encoding="utf-8"))
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description="Plan the paper's full recipe, or measure the rows of small runs.")
    parser.add_argument(
        "--measure", type=Path, action="append", help="a run of code or html; repeat it for the other kind"
    )
    parser.add_argument("--cores", type=int, default=2, help="cores of the machine that made the runs")
    options = parser.parse_args()
    output = measure(options.measure, options.cores) if options.measure else plan(read_measured(Path.cwd()))
    json.dump(output, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
