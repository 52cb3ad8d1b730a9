"""Estimate the paper's full recipe: tokens, memory and bytes at 8B and 70B parameters, at one, ten and a hundred times
the size, and write the tables of docs/planning.md.

    python -m docs.tools.planning

Nothing is run: every number follows from `INPUTS` by the formulas here, from the models' shapes by
`sweet.learn.estimate`, and from rows of the assumed sizes, which are written in the format of the stages. A test
compares the page with the plan. No number is typed by hand.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs.tools.commands import put_between
from sweet.learn.batches import GPU_TOKENS
from sweet.learn.estimate import HALF, Shape, ZeroSettings, buffers, casts, forward_memory, model_states
from sweet.learn.rows import Candidate, CandidateRow, Pair
from sweet.runs.jsonl import JsonlWriter
from sweet.tasks.trajectory import Trajectory, dump
from sweet.units import format_bytes
from sweet.view.safe_markdown import table

PAGE = Path("docs/planning.md")
BEGIN = "<!-- plan: python -m docs.tools.planning -->"
END = "<!-- end of plan -->"

KINDS = ("code", "html")
DEVICES = (8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Input:
    """An input and its source."""

    value: float
    unit: str
    basis: str


PAPER, PUBLISHED, ASSUMED = "paper", "published data", "assumption"
SHEET, PROGRAM = "data sheet", "the program's default"

INPUTS: dict[str, Input] = {
    "code tasks": Input(5_000, "tasks with three dialogues each, of 10,000 for training", PUBLISHED),
    "code dialogues": Input(15_000, "dialogues", PAPER),
    "code turns": Input(7, "agent's turns per dialogue, at most 10", ASSUMED),
    "code tokens a turn": Input(100, "tokens that the agent writes per turn", ASSUMED),
    "code tokens of the human": Input(60, "tokens per reply", ASSUMED),
    "code tests": Input(10, "tests per task", PAPER),
    "code epochs": Input(4, "of the critic", PAPER),
    "html tasks": Input(1_000, "tasks with six dialogues each, of 10,000 for training", PUBLISHED),
    "html dialogues": Input(6_000, "dialogues", PAPER),
    "html turns": Input(10, "agent's turns per dialogue: 60,000 screenshots", ASSUMED),
    "html tokens a turn": Input(700, "tokens that the agent writes per turn: a page", ASSUMED),
    "html tokens of the human": Input(120, "tokens per reply", ASSUMED),
    "html tests": Input(0, "tests per task", PAPER),
    "html epochs": Input(8, "of the critic", PAPER),
    "tokens of the opening": Input(400, "system prompt and request", ASSUMED),
    "tokens of the reference": Input(300, "tokens, code; a page has those of a turn", ASSUMED),
    "tokens of a screenshot": Input(1_280, "tokens; the human of html sees two per turn", ASSUMED),
    "code preferences a dialogue": Input(
        0.31, "where each of a task's three dialogues succeeds with 22.4 %: (1 - p) - (1 - p)^3", ASSUMED
    ),
    "html preferences a dialogue": Input(1 / 3, "where 2 of the 15 pairs of a task differ by 0.1", ASSUMED),
    "fraction": Input(0.1, "of the turns are ranked", PROGRAM),
    "candidates": Input(16, "per turn", PAPER),
    "pairs": Input(4, "per turn", PAPER),
    "characters a token": Input(4, "of text", ASSUMED),
    "memory": Input(80e9, "bytes per GPU", SHEET),
}


def of(name: str) -> float:
    return INPUTS[name].value


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


def work(kind: str, scale: int = 1) -> dict[str, dict[str, float]]:
    """Return the tokens that the models of each stage read, write and train.

    Prompts are counted without a prefix cache; prefix trees are counted as the program computes them.
    """
    d = Dialogues(kind, scale)
    reply = d.own("tokens a turn")
    human = d.own("tokens of the human")
    prompt = d.context / 2 + d.hidden
    judged = d.ranked * (prompt + (1 + of("candidates")) * reply)
    pairs = d.ranked * of("pairs")
    preference = 2 * (d.context + d.hidden)
    tokens = {
        "rollout, agent": (d.count * d.prompts, d.count * d.turns * reply, 0.0),
        "rollout, human": (d.count * d.seen, d.count * d.turns * human, 0.0),
        "train-critic": (d.preferences * preference, 0.0, d.own("epochs") * d.preferences * preference),
        "rank, agent": (d.ranked * d.context / 2, d.ranked * of("candidates") * reply, 0.0),
        "rank, critic and reference": (2 * judged, 0.0, 0.0),
        "train-actor": (pairs * (d.context / 2 + 2 * reply), 0.0, pairs * (d.context / 2 + 2 * reply)),
    }
    names = ("tokens_read", "tokens_written", "tokens_trained")
    return {stage: dict(zip(names, counts, strict=True)) for stage, counts in tokens.items()}


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
    pair = Pair.of(ranked, "p1", one, one)
    return {"rollouts": _size(dump(trajectory)), "candidates": _size(ranked), "pairs": _size(pair)}


def _size(row: Any) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        with JsonlWriter(path) as writer:
            writer.write(row)
        return path.stat().st_size


def data(kind: str, scale: int = 1) -> dict[str, float]:
    """Return the bytes that the stages write, and the number of screenshots."""
    d, size = Dialogues(kind, scale), rows(kind)
    references = min(d.count, scale * d.own("tasks"))
    return {
        "rollouts": d.count * size["rollouts"],
        "candidates": d.ranked * size["candidates"],
        "pairs": d.ranked * of("pairs") * size["pairs"],
        "screenshots": d.count * d.turns + references if kind == "html" else 0.0,
    }


def block() -> str:
    """Return the Markdown between the markers."""
    return "\n\n".join(_parts()) + "\n"


def _parts() -> Iterator[str]:
    yield "### Inputs"
    inputs: dict[str, list[str]] = {}
    for name, one in INPUTS.items():
        inputs.setdefault(one.basis, []).append(f"{name} {_number(one.value)}")
    yield "\n".join(f"- {basis}: {'; '.join(texts)}" for basis, texts in inputs.items())
    yield "### Tokens"
    both = [work(kind) for kind in KINDS]
    counts = [(stage, *(_number(n) for one in both for n in one[stage].values())) for stage in both[0]]
    yield table(("", *(f"{kind}, {does}" for kind in KINDS for does in ("read", "written", "trained"))), counts)
    yield "### Memory of a GPU"
    yield table(("per GPU", "8B", "70B"), _memory([memory(model) for model in MODELS.values()]))
    yield "### Data"
    stored = [data(kind, 1) for kind in KINDS]
    sizes = [(name, *(format_bytes(of[name]) for of in stored)) for name in ("rollouts", "candidates", "pairs")]
    yield table(("", *KINDS), [*sizes, ("screenshots", *(_number(of["screenshots"]) for of in stored))])


def _memory(both: list[dict[str, Any]]) -> Iterator[list[str]]:
    def line(name: str, key: str) -> list[str]:
        return [name, *(format_bytes(of[key]) for of in both)]

    yield line("serving: weights in bf16", "serve")
    yield [
        "serving: GPUs of a server, with half of their memory for the KV cache",
        *(str(m["serve_devices"]) for m in both),
    ]
    yield line("serving: KV cache of a token", "kept_token")
    yield line("training: weights, gradients, AdamW in fp32, divided by the GPUs", "states")
    yield line("training: bf16 copies of the weights of a layer and of the output, on each GPU", "casts")
    yield line(f"training: activations of {GPU_TOKENS:,} tokens, with gradient checkpointing", "activations")
    yield line("training: buffers for weights of other GPUs and for a bucket of gradients", "buffers")
    fewest = [str(one["devices"] or "none fits") for one in both]
    yield [f"training: fewest GPUs of {DEVICES[0]} to {DEVICES[-1]} under ZeRO 3", *fewest]
    yield line(f"training: each of these GPUs, or of {DEVICES[-1]}", "of_one")
    yield line("training: a checkpoint on the disk", "checkpoint")
    yield line("ranking: critic and reference in bf16, together", "rank")


def _number(value: float) -> str:
    """Format a number, from millions on with the suffixes M, G, T, P."""
    if value and abs(value) < 10:
        return f"{value:.2g}"
    for power, word in ((15, "P"), (12, "T"), (9, "G"), (6, "M")):
        if abs(value) >= 10**power:
            return f"{value / 10**power:.3g} {word}"
    return f"{value:,.0f}"


def update(root: Path) -> None:
    """Write the tables into the page of the repository at `root`."""
    page = (root / PAGE).read_text(encoding="utf-8")
    (root / PAGE).write_text(put_between(page, BEGIN, END, block()), encoding="utf-8")


if __name__ == "__main__":
    update(Path.cwd())
