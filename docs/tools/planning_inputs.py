"""What `docs.tools.planning` puts in: each number with what it rests on. Change one, and the plan is another."""

from __future__ import annotations

from dataclasses import dataclass

from sweet.learn.engine import PEAK_FLOPS


@dataclass(frozen=True)
class Input:
    """A number that is put in, and what it rests on."""

    value: float
    unit: str
    basis: str


PAPER, ASSUMED, SHEET, PROGRAM = "paper", "assumption", "data sheet", "the program's default"

INPUTS: dict[str, Input] = {
    "code tasks": Input(10_000, "tasks", PAPER),
    "code dialogues": Input(15_000, "dialogues", PAPER),
    "code turns": Input(7, "agent's turns a dialogue, of 10 at most", ASSUMED),
    "code tokens a turn": Input(100, "tokens the agent writes", ASSUMED),
    "code tokens of the human": Input(60, "tokens a reply", ASSUMED),
    "code tests": Input(10, "tests a task", PAPER),
    "code epochs": Input(4, "of the critic", PAPER),
    "html tasks": Input(10_000, "tasks", PAPER),
    "html dialogues": Input(6_000, "dialogues", PAPER),
    "html turns": Input(10, "agent's turns a dialogue: 60,000 screenshots", ASSUMED),
    "html tokens a turn": Input(700, "tokens the agent writes, a page", ASSUMED),
    "html tokens of the human": Input(120, "tokens a reply", ASSUMED),
    "html tests": Input(0, "tests a task", PAPER),
    "html epochs": Input(8, "of the critic", PAPER),
    "tokens of the opening": Input(400, "system prompt and request", ASSUMED),
    "tokens of the reference": Input(300, "c, code; a page has that of a turn", ASSUMED),
    "tokens of a screenshot": Input(1_280, "tokens; the human of html sees two a turn", ASSUMED),
    "preferences a dialogue": Input(1 / 3, "at most 15,000 - 10,000 of 15,000; taken for html too", ASSUMED),
    "fraction": Input(0.1, "of the turns are ranked", PROGRAM),
    "candidates": Input(16, "a turn", PAPER),
    "pairs": Input(4, "a turn", PAPER),
    "batch": Input(8, "pairs a step", PAPER),
    "human": Input(70.6e9, "parameters, in both columns; 72B with eyes for html", PAPER),
    "characters a token": Input(4, "of text", ASSUMED),
    "peak": Input(PEAK_FLOPS["H100"], "operations a second of an H100, bf16, dense", SHEET),
    "memory": Input(80e9, "bytes of a GPU", SHEET),
    "reading": Input(0.4, "of the peak, prompts and scoring", ASSUMED),
    "writing": Input(0.05, "of the peak, one token after the other in large batches", ASSUMED),
    "training": Input(0.35, "of the peak", ASSUMED),
    "network": Input(50e9, "bytes a second and GPU between nodes (400 Gbit/s)", ASSUMED),
    "node": Input(8, "GPUs of a node", ASSUMED),
    "cores": Input(32, "of a node", ASSUMED),
    "host memory": Input(1e12, "bytes of a node", ASSUMED),
    "disk": Input(10e12, "bytes on the disk that all nodes see", ASSUMED),
    "files": Input(10e6, "files on it", ASSUMED),
    "patience": Input(720, "hours that one command may take", ASSUMED),
}


def of(name: str) -> float:
    return INPUTS[name].value
