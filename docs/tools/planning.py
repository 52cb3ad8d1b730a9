"""The paper's full recipe, planned: operations, GPU-hours, memory and bytes at 8B and 70B parameters, at one, ten and a
hundred times the size.

    python -m docs.tools.planning > plan.json                 the plan, from docs.tools.planning_inputs
    python -m docs.tools.planning --measure RUN --measure RUN  what rows take in runs of this machine
    python -m docs.tools.planning_page                        docs/planning.md's tables from both

Nothing is run: every figure follows from `docs.tools.planning_inputs` by the formulas here, from the models' shapes by
`sweet.learn.estimate`, and from the program's own rows, which are built at the sizes assumed and written as a stage
would write them. Forward: 2 operations a parameter and token, training: 6 (arXiv 2001.08361, section 2.1).
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
"""What `--measure` printed."""

SCALES = (1, 10, 100)
DEVICES = (8, 16, 32, 64, 128, 256)
FORWARD, TRAINED = 2, 6
OBJECT = 36
"""Bytes of a token id in a tuple of Python: a pointer and an int."""


@dataclass(frozen=True)
class Model:
    parameters: float
    shape: Shape


MODELS = {
    "8B": Model(8.03e9, Shape(4096, 32, 4096, 1024, 14336, 128256)),
    "70B": Model(70.6e9, Shape(8192, 80, 8192, 1024, 28672, 128256)),
}
"""Llama 3.1's configurations."""


@dataclass(frozen=True)
class Dialogues:
    """The sizes of one kind's dialogues, in tokens where nothing else is said."""

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
        """What a turn adds: the agent's reply and the human's."""
        return self.own("tokens a turn") + self.own("tokens of the human")

    @property
    def context(self) -> float:
        """A whole dialogue."""
        return of("tokens of the opening") + self.turns * self.exchange

    @property
    def prompts(self) -> float:
        """The prompts of all turns, each from its beginning."""
        return self.turns * of("tokens of the opening") + self.exchange * self.turns * (self.turns - 1) / 2

    @property
    def hidden(self) -> float:
        return of("tokens of the reference") if self.kind == "code" else self.own("tokens a turn")

    @property
    def seen(self) -> float:
        """What the human reads over a dialogue: reference, dialogue so far, and both screenshots of a page."""
        pictures = 2 * of("tokens of a screenshot") if self.kind == "html" else 0
        return self.prompts + self.turns * (self.own("tokens a turn") + self.hidden + pictures)

    @property
    def ranked(self) -> float:
        """Turns that are ranked."""
        return self.count * self.turns * of("fraction")

    @property
    def preferences(self) -> float:
        return self.count * of("preferences a dialogue")


def work(kind: str, model: Model, scale: int = 1) -> dict[str, dict[str, float]]:
    """What the models of each stage read, write and train, and the operations: of every token, as the program does
    without prefixes kept, and of trees where the program computes trees."""
    d, n = Dialogues(kind, scale), model.parameters
    reply = d.own("tokens a turn")
    human = d.own("tokens of the human")
    turn = d.context / 2 + d.hidden
    judged = d.ranked * (turn + (1 + of("candidates")) * reply)
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
    """Bytes of one GPU at full fine-tuning under ZeRO 3, on the fewest GPUs of `DEVICES` that it fits, and while a
    critic ranks; None where it fits on none."""
    n, positions = round(model.parameters), GPU_TOKENS
    forward = forward_memory(model.shape, positions, positions, mixed=True, longest=positions, checkpointing=True)
    kept = {
        "casts": casts(model.shape, n, mixed=True, checkpointing=True),
        "activations": sum(forward.values()),
        "buffers": buffers(model.shape, n, ZeroSettings(3)),
    }

    def states(devices: int) -> float:
        found = model_states(n, n, ZeroSettings(3, "none"), devices)
        return found.weights + found.gradients + found.optimizer

    fits = (devices for devices in DEVICES if states(devices) + sum(kept.values()) <= of("memory"))
    devices = next(fits, None)
    shape = model.shape
    return {
        "states": states(1),
        **kept,
        "devices": devices,
        "of_one": states(devices or DEVICES[-1]) + sum(kept.values()),
        "rank": 2 * HALF * n,
        "serve": HALF * n,
        "serve_devices": 2 ** math.ceil(math.log2(max(2 * HALF * n / of("memory"), 1))),
        "kept_token": 2 * HALF * shape.layers * shape.keys,
        "checkpoint": states(1) - 4 * n,
        "step_traffic": 3 * 4 * n,
        "traffic": {kind: longest_steps(Dialogues(kind)) * 3 * 4 * n for kind in ("code", "html")},
    }


def rows(kind: str) -> dict[str, float]:
    """Bytes of one row of each kind, written by the program from rows of the sizes assumed."""
    d = Dialogues(kind)

    def text(tokens: float) -> str:
        return "x" * round(tokens * of("characters a token"))

    def ids(tokens: float) -> list[int]:
        return [64_000] * round(tokens)

    reply, human, task = d.own("tokens a turn"), d.own("tokens of the human"), of("tokens of the opening")
    history: list[dict[str, Any]] = [{"role": "user", "content": text(task)}]
    for _ in range(round(d.turns)):
        said = {"content": text(reply), "output": text(reply), "token_ids": ids(reply)}
        history.append({"role": "assistant", **said, "finish_reason": "stop", "sampling_seed": 2**31})
        history.append({"role": "user", "content": text(human)})
    history[-2]["prompt_token_ids"] = ids(d.context)
    tests = {f"test{number}": text(10) for number in range(round(d.own("tests")))}
    problem = {"id": "task-00000", "problem_description": text(task), "ground_truth": text(d.hidden)}
    dialogue = {"id": "task-00000-s0-r0", "task": {**problem, "test_cases": tests}, "dialogue_history": history[:-1]}
    trajectory = Trajectory.model_validate({**dialogue, "answer": text(reply)})
    seen = trajectory.observation(2 * (round(d.turns) // 2) - 1, text(task))
    one = Candidate(text=text(reply), token_ids=tuple(ids(reply)), advantage=-0.123456, logprob=-1.234567, tokens=9)
    named = {"trajectory_id": trajectory.id, "task_id": trajectory.task_id, "turn": 1, "observation": seen}
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
    """Bytes and files that the stages leave, and hours of one machine's cores for what needs no GPU."""
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
    """Steps of the training that has more of them, each of one micro-batch a GPU."""
    return max(d.preferences * d.own("epochs"), d.ranked * of("pairs")) / of("batch")


def limits(kind: str, name: str, measured: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What meets a limit of the program or of machines: the scale at which it does (`full_at`, 1 for what is too large
    at once; None for what stays within it at any), and the first of `SCALES` that passes it."""
    model, kept = MODELS[name], memory(MODELS[name])

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
            "training step": (kept["of_one"], of("memory")),
            "ranking critic": (kept["rank"], of("memory")),
            "rollout hours": (played / of("node"), of("patience")),
            "core hours": (stored["core_hours"] / of("cores"), of("patience")),
            "training hours": (longest / of("batch"), of("patience")),
            "network hours": (longest_steps(d) * kept["step_traffic"] / of("network") / HOUR, of("patience")),
            "ranking hours": (judging, of("patience")),
            "training pool": (of("node") * pool, of("host memory")),
            "dialogues in memory": (text + ids * OBJECT, of("host memory")),
            "candidates in memory": (stored["candidates"] + candidates * OBJECT, of("host memory")),
            "disk": (text + stored["candidates"] + stored["pairs"] + stored["screenshot_bytes"], of("disk")),
            "files": (stored["files"], of("files")),
        }

    found = {scale: at(scale) for scale in SCALES}
    return {
        what: {
            "limit": found[1][what][1],
            "values": {scale: found[scale][what][0] for scale in SCALES},
            "full_at": _full_at(*found[1][what], grows=found[1][what][0] < found[SCALES[-1]][what][0]),
            "breaks_at": next((s for s in SCALES if found[s][what][0] > found[s][what][1]), None),
        }
        for what in found[1]
    }


def _full_at(value: float, limit: float, *, grows: bool) -> float | None:
    return max(limit / value, 1.0) if grows else 1.0 if value > limit else None


def plan(measured: dict[str, Any]) -> dict[str, Any]:
    """Everything, as JSON types."""
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
    """What small runs took: bytes a row of each artifact, of a screenshot, seconds an answer and a screenshot."""
    found: dict[str, Any] = {"cores": cores, "rows": {}, "seconds": {}}
    for path in paths:
        manifest = Run.open(path).manifest()
        own = found["rows"].setdefault(manifest.task, {})
        for artifact in manifest.artifacts:
            if artifact.rows and artifact.bytes and artifact.rows >= own.get(artifact.kind, {"rows": 0})["rows"]:
                own[artifact.kind] = {"rows": artifact.rows, "bytes": artifact.bytes}
        shots = sorted((path / SCREENSHOTS).rglob("*.png"))
        spans = {stage: finished(manifest, path, stage) for stage in ("rollout", "eval")}
        if shots:
            sizes = {suffix: [s.with_suffix(f".{suffix}").stat().st_size for s in shots] for suffix in ("png", "json")}
            found["screenshot"] = {suffix: round(sum(of_all) / len(shots)) for suffix, of_all in sizes.items()}
            seconds = sum(past.seconds or 0.0 for pasts in spans.values() for past in pasts)
            found["seconds"]["screenshot"] = round(seconds / len(shots), 4)
        elif spans["eval"]:
            most = max(spans["eval"], key=lambda past: past.rows or 0)
            found["seconds"]["answer"] = round((most.seconds or math.nan) / (most.rows or math.nan), 6)
    return found


def read_measured(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / MEASURED).read_text(encoding="utf-8"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Plan the paper's full recipe, or measure the rows of small runs.")
    parser.add_argument("--measure", type=Path, action="append", help="a run of code or html, one of each")
    parser.add_argument("--cores", type=int, default=2, help="of the machine that the runs were made on")
    given = parser.parse_args()
    told = measure(given.measure, given.cores) if given.measure else plan(read_measured(Path.cwd()))
    json.dump(told, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
