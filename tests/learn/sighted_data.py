"""Dialogues about pages, and preferences between them for a critic that sees the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sweet.learn.components import Example
from sweet.learn.page_encoder import PageEncoder
from sweet.learn.sequences import Pool
from sweet.learn.vision_processor import VisionProcessor
from sweet.llm.pretrained import load_tokenizer
from sweet.tasks.base import Task
from sweet.tasks.trajectory import Trajectory, Turn
from tests.learn.sighted import PaintedScreenshots, paint

BOUND = 1024
REFERENCE, RED, BLUE, TALL, BROKEN = (f"<html>{name}</html>" for name in ("ref", "red", "blue", "tall", "broken"))
SHOTS: dict[str, bytes | str] = {
    REFERENCE: paint("green"),
    RED: paint("red"),
    BLUE: paint("blue"),
    TALL: paint("orange", 128, 640),
    BROKEN: "it took longer than 15 seconds",
}


def page_of(text: str) -> str | None:
    start = text.find("<html>")
    return text[start : text.index("</html>") + 7] if start >= 0 else None


def dialogue(*said: str, name: str = "d", **turn: Any) -> Trajectory:
    history = [Turn(role="user", content="A page for a bakery.")]
    for number, text in enumerate(said):
        history += [Turn(role="assistant", content=text, output=text, **turn)]
        history += [Turn(role="user", content=f"It is {number} off.")]
    task = Task(id="t", problem_description="A page for a bakery.", ground_truth=REFERENCE)
    return Trajectory(id=name, task=task, dialogue_history=tuple(history[:-1]))


def sighted_preferences(model: str, folder: Path, count: int = 12) -> tuple[VisionProcessor, Pool, list[Example]]:
    """Preferences for red pages over blue ones, after fewer turns: otherwise the gradient of the head's bias would be 0
    but for rounding. Of every third one nothing has a screenshot; their texts differ in length.

    Args:
        model: the name of a vision-language model.
        folder: for the screenshots.
    """
    folder.mkdir(exist_ok=True)
    vision, pool, examples = VisionProcessor(model, BOUND), Pool(), []
    encoder = PageEncoder(load_tokenizer(model), vision, PaintedScreenshots(folder, SHOTS), page_of)
    for number in range(count):
        blind = number % 3 == 0
        sides = []
        for name, page, turns in ((f"{number} +", RED, 1), (f"{number} -", BLUE, 2 + number % 2)):
            said = [f"{name} {'and ' * (7 * number % 5)}{'' if blind else page}"] * turns
            encoded = encoder.dialogue(dialogue(*said), "You build.", hidden=BROKEN if blind else REFERENCE)
            sides.append(pool.put(name, encoded.sequences))
        examples.append(Example(f"pair {number}", *sides))
    return vision, pool, examples
