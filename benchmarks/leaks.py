"""Measure how well leaks of the reference are found: recall and false alarms on a labelled set made from a task file.

    python -m benchmarks.leaks FILE [--tasks N] [--half dev|held-out|both] [--seed 0] [--show 5]

Every reference is given away in each form of benchmarks.leaks_forms (pages: benchmarks.leaks_pages), whole in one reply
and in pieces over two to four turns; and for every task each kind of honest reply of benchmarks.leaks_honest is said
once, and a dialogue of six of them. A leak is found if a reply of its dialogue is a leak; a false alarm is an honest
dialogue in which one is. `dev` is the half of the tasks that the detector was made with, `held-out` the other, by a
hash of the reference. Prints one JSON object: recall overall, by form, whole and in pieces; the rate of false alarms
overall and by kind; CPU seconds for each reply. `--show` prints so many of the misses and of the false alarms of each
on stderr.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import leaks_forms, leaks_honest, leaks_pages
from sweet.humans.leaks.find import find_leak
from sweet.humans.leaks.pages import is_page
from sweet.humans.leaks.pieces import shown_in, source_in
from sweet.tasks.base import Message, Task
from sweet.tasks.files import load_task_file
from sweet.tasks.registry import task_kind

TURNS = 6
"""Honest replies in a dialogue of several."""

Said = list[tuple[str, str]]


@dataclass(frozen=True)
class Case:
    """A dialogue with its label.

    Attributes:
        said: what the agent writes and what the human replies, turn after turn.
        leaks: whether the reference is given away in it.
        name: the form, or the kind of honest reply.
        whole: whether it is one reply.
    """

    task: Task
    said: Said
    leaks: bool
    name: str
    whole: bool


def half_of(task: Task) -> str:
    """Return the half of the tasks that a task belongs to."""
    return ("dev", "held-out")[hashlib.sha256(task.ground_truth.encode()).digest()[0] % 2]


def cases(task: Task, tasks: list[Task], rng: random.Random) -> Iterator[Case]:
    """Yield the labelled dialogues of one task."""
    forms = leaks_pages.FORMS if is_page(task.ground_truth) else leaks_forms.FORMS
    for name, form in forms.items():
        text = form(task.ground_truth, rng)
        if text is None:
            continue
        yield Case(task, [(rng.choice(leaks_honest.ASKED), text)], True, name, True)
        turns = leaks_forms.in_turns(text, rng)
        if turns is not None and len(turns) > 1:
            yield Case(task, [(leaks_honest.ASKED[i % 4], turn) for i, turn in enumerate(turns)], True, name, False)
    kinds = leaks_pages.KINDS if is_page(task.ground_truth) else leaks_honest.KINDS
    several = leaks_pages.CONVERSATIONAL if is_page(task.ground_truth) else leaks_honest.CONVERSATIONAL
    for name, kind in kinds.items():
        said = kind(task, tasks, rng)
        if said is not None:
            yield Case(task, said, False, name, True)
    together = [said for name in rng.sample(several, len(several)) if (said := kinds[name](task, tasks, rng))]
    yield Case(task, [turn for said in together[:TURNS] for turn in said], False, "several turns", False)


def found(case: Case) -> tuple[int, int]:
    """Return the turn, from 1, whose reply is a leak (0 for none), and how many replies were examined."""
    request = case.task.problem_description
    dialogue = [Message(role="user", content=request)]
    for turn, (asked, reply) in enumerate(case.said, 1):
        dialogue.append(Message(role="assistant", content=asked))
        if find_leak(case.task.ground_truth, request, dialogue, reply) is not None:
            return turn, turn
        dialogue.append(Message(role="user", content=reply))
    return 0, len(case.said)


def measure(tasks: Sequence[Task], others: list[Task], seed: int, show: int = 0) -> dict[str, Any]:
    """Return recall and false alarms over the tasks; `others` are those from which unrelated code comes."""
    totals: Counter[tuple[bool, str, bool]] = Counter()
    hits: Counter[tuple[bool, str, bool]] = Counter()
    shown: Counter[tuple[bool, str]] = Counter()
    replies, seconds, slowest = 0, 0.0, 0.0
    for task in tasks:
        digest = hashlib.sha256(f"{seed} {task.ground_truth}".encode()).digest()
        for case in cases(task, others, random.Random(digest)):
            source_in.cache_clear()
            shown_in.cache_clear()
            began = time.process_time()
            turn, examined = found(case)
            took = time.process_time() - began
            replies, seconds, slowest = replies + examined, seconds + took, max(slowest, took / examined)
            label = (case.leaks, case.name, case.whole)
            totals[label] += 1
            hits[label] += turn > 0
            if (turn > 0) != case.leaks and shown[case.leaks, case.name] < show:
                shown[case.leaks, case.name] += 1
                what = "MISSED" if case.leaks else f"FALSE ALARM in turn {turn}"
                texts = "\n--\n".join(ascii(reply).replace("\\n", "\n") for _, reply in case.said)
                print(f"=== {what}: {case.name}\n{texts}\n--- reference\n{task.ground_truth!a}", file=sys.stderr)

    def rate(**which: object) -> float | None:
        keys = [
            key
            for key in totals
            if all(
                dict(zip(("leaks", "name", "whole"), key, strict=True))[name] == value for name, value in which.items()
            )
        ]
        total = sum(totals[key] for key in keys)
        return round(sum(hits[key] for key in keys) / total, 4) if total else None

    forms = sorted({name for leaks, name, _ in totals if leaks})
    kinds = sorted({name for leaks, name, _ in totals if not leaks})
    return {
        "tasks": len(tasks),
        "leaks": sum(count for (leaks, _, _), count in totals.items() if leaks),
        "honest": sum(count for (leaks, _, _), count in totals.items() if not leaks),
        "recall": rate(leaks=True),
        "recall_whole": rate(leaks=True, whole=True),
        "recall_in_pieces": rate(leaks=True, whole=False),
        "false_alarms": rate(leaks=False),
        "false_alarms_of_dialogues": rate(leaks=False, whole=False),
        "recall_by_form": {
            name: {
                "whole": rate(leaks=True, name=name, whole=True),
                "in_pieces": rate(leaks=True, name=name, whole=False),
            }
            for name in forms
        },
        "false_alarms_by_kind": {name: rate(leaks=False, name=name) for name in kinds},
        "seconds_per_reply": round(seconds / max(replies, 1), 5),
        "slowest_seconds_per_reply": round(slowest, 4),
    }


def load(path: str) -> list[Task]:
    """Return the tasks of a file whose references are programs or pages, each reference once."""
    kind = next((name for name in ("code", "html") if task_kind(name).has_dataset(path)), None)
    # A file may have tasks of any kind: no more than their texts is needed.
    rows = task_kind(kind).load(path, "train") if kind else load_task_file(Path(path), lambda _row, _wrong: {})
    return list({task.ground_truth: task for task in rows if is_page(task.ground_truth) or _parses(task)}.values())


def _parses(task: Task) -> bool:
    try:
        leaks_forms.body_of(task.ground_truth)
    except (SyntaxError, IndexError):
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Recall and false alarms of the detector of leaks.")
    parser.add_argument("file", help="a task file, or the name of a packaged dataset: micro, pages")
    parser.add_argument("--tasks", type=int, default=1000, help="use at most so many of the tasks")
    parser.add_argument("--half", choices=("dev", "held-out", "both"), default="both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0, help="print so many errors of each form and kind on stderr")
    options = parser.parse_args()
    tasks = load(options.file)[: options.tasks]
    programs = [task for task in tasks if not is_page(task.ground_truth)]
    chosen = [task for task in tasks if options.half in ("both", half_of(task))]
    print(json.dumps({"half": options.half, **measure(chosen, programs, options.seed, options.show)}, indent=1))


if __name__ == "__main__":
    main()
