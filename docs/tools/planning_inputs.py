"""The inputs of `docs.tools.planning`, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

from sweet.learn.engine import PEAK_FLOPS


@dataclass(frozen=True)
class Input:
    """An input and its source."""

    value: float
    unit: str
    basis: str


PAPER, PUBLISHED, ASSUMED, SHEET, PROGRAM = (
    "paper",
    "published data",
    "assumption",
    "data sheet",
    "the program's default",
)

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
    "batch": Input(8, "pairs per step", PAPER),
    "human": Input(70.6e9, "parameters, in both columns; for html a 72B vision model", PAPER),
    "characters a token": Input(4, "of text", ASSUMED),
    "peak": Input(PEAK_FLOPS["H100"], "operations per second of an H100, bf16, dense", SHEET),
    "memory": Input(80e9, "bytes per GPU", SHEET),
    "reading": Input(0.4, "of the peak, prompts and scoring", ASSUMED),
    "writing": Input(0.05, "of the peak, token by token in large batches", ASSUMED),
    "training": Input(0.35, "of the peak", ASSUMED),
    "network": Input(50e9, "bytes per second and GPU between nodes (400 Gbit/s)", ASSUMED),
    "node": Input(8, "GPUs per node", ASSUMED),
    "cores": Input(32, "per node", ASSUMED),
    "host memory": Input(1e12, "bytes per node", ASSUMED),
    "disk": Input(10e12, "bytes of the shared disk", ASSUMED),
    "files": Input(10e6, "files on the shared disk", ASSUMED),
    "patience": Input(720, "hours of one command at most", ASSUMED),
}


def of(name: str) -> float:
    return INPUTS[name].value
