"""Make a large run for the viewer: trajectories in the form of a rollout, scored, some ranked and paired, without
playing them. The same number of trajectories always gives the same bytes.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sweet.learn.rows import Candidate, CandidateRow, Pair
from sweet.rollouts.dialogue import Assignment
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.stages.base import StageConfig
from sweet.tasks.base import NO_ANSWER, Task
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Outcome, Trajectory, Turn, Usage, dump

TRAJECTORIES = 15_000
SAMPLES = 10
"""Trajectories per task."""
RANKED = 50
"""One of this many trajectories has candidates and pairs."""
CANDIDATES = 8
NEEDLE = "fluorescent zebra"
"""Words that occur in one of `NEEDLES` dialogues, and nowhere else."""
NEEDLES = 500

WORDS = re.findall(
    r"\w+",
    """the value of each entry is rounded down before it counts and an empty list gives zero so that negative numbers
    are left out while a missing key means the default rate for weekdays holidays are doubled unless the customer has a
    discount which never exceeds the base price of this order when two items share one name take the later date""",
)
CODE = (
    "    total = 0",
    "    for entry in entries:",
    "        total += entry['value'] * rate",
    "    if total > limit:",
    "        total = limit + (total - limit) // 2",
    "    rounded = round(total, 2)",
    "    return rounded if rounded > 0 else 0  # “no charge”",
)


class LargeConfig(StageConfig):
    """The configuration in the manifest."""

    trajectories: int = TRAJECTORIES
    stage: str = "rollout"


def make(folder: Path, trajectories: int = TRAJECTORIES) -> Run:
    """Make the run at `folder`, which must not exist."""
    run = Run.create(folder, task="code")
    rollouts = _write(run, "rollout", "rollouts", map(dump, played(trajectories)), [], trajectories)
    _write(run, "eval", "scores", map(scored, played(trajectories)), [rollouts], trajectories)
    chosen = list(itertools.islice(played(trajectories), 0, None, RANKED))
    rows = [row for trajectory in chosen for row in ranked(trajectory)]
    candidates = _write(run, "rank", "candidates", rows, [rollouts], trajectories)
    _write(run, "pair", "pairs", [pair for row in rows for pair in paired(row)], [candidates], trajectories)
    return run


def _write(run: Run, stage: str, kind: Kind, rows: Iterable[Any], inputs: list[Artifact], number: int) -> Artifact:
    with run.attempt(stage, LargeConfig(trajectories=number, stage=stage), inputs=inputs) as attempt:
        draft = attempt.start_artifact(kind)
        with JsonlWriter(draft.path) as writer:
            for row in rows:
                writer.write(row)
        return attempt.finish_artifact(draft, rows=writer.rows)


def played(trajectories: int) -> Iterator[Trajectory]:
    """Yield the trajectories in the order of a rollout, sample by sample."""
    tasks = [_task(number) for number in range(-(-trajectories // SAMPLES))]
    for number in range(trajectories):
        yield _trajectory(number, tasks[number % len(tasks)], number // len(tasks))


def _task(number: int) -> Task:
    draw = random.Random(f"task {number}")
    name = f"charge_{number}"
    hidden = _function(draw, name, 12)
    return Task(
        id=f"large-train-{number:05d}",
        problem_description=f"{_prose(draw, 60)} The signature of the function is: def {name}(entries, rate, limit)",
        ground_truth=hidden,
        test_cases={f"test{n}": f"{name}([{{'value': {draw.randint(0, 99)}}}], {n}, 100)" for n in range(1, 11)},
    )


def _trajectory(number: int, task: Task, sample: int) -> Trajectory:
    draw = random.Random(f"dialogue {number}")
    named = Assignment(task, sample, 0)
    turns = [Turn(role="user", content=task.problem_description)]
    count = draw.randint(3, 8)
    outcome: Outcome = draw.choices(("answered", "out_of_turns", "human_error"), (85, 12, 3))[0]
    answer = NO_ANSWER
    for turn in range(count):
        last = turn == count - 1
        said = _prose(draw, draw.randint(37, 80))
        if not number % NEEDLES and turn == 1:
            said += f" Is it the {NEEDLE}?"
        if last and outcome == "answered":
            answer = _function(draw, task.id.replace("-", "_"), draw.randint(8, 30))
            said = f"I WANT TO ANSWER:\n```python\n{answer}\n```"
        turns.append(_reply(draw, said, named.turn_seed(turn), last=last))
        if not last:
            turns.append(Turn(role="user", content=_prose(draw, draw.randint(10, 40)).capitalize()))
    if outcome == "human_error":
        turns.append(Turn(role="user", content="As an AI language model, I cannot assist with that."))
    fault = {"fault": "refusal", "error": "the human refused to play"} if outcome == "human_error" else {}
    tokens = sum(len(turn.token_ids or ()) for turn in turns)
    seconds = round(draw.uniform(2, 60), 4)
    usage = Usage(prompt_tokens=8 * tokens, completion_tokens=tokens, agent_seconds=seconds, seconds=seconds)
    return Trajectory(
        id=named.id,
        task=task,
        dialogue_history=tuple(turns),
        answer=answer,
        sample=sample,
        seed=0,
        outcome=outcome,
        usage=usage,
        **fault,
    )


def _reply(draw: random.Random, said: str, seed: int, *, last: bool) -> Turn:
    """Return a turn of the agent with ids and log-probabilities, as a server returns them."""
    tokens = len(said) // 4
    return Turn(
        role="assistant",
        content=said,
        output=f"{_prose(draw, 40)}\nOUTPUT: {said}",
        token_ids=tuple(draw.randrange(128_000) for _ in range(tokens)),
        prompt_token_ids=tuple(draw.randrange(128_000) for _ in range(6 * tokens)) if last else None,
        logprobs=tuple(-draw.expovariate(2.0) for _ in range(tokens)),
        finish_reason="stop",
        sampling_seed=seed,
    )


def _prose(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(WORDS, k=words)) + "."


def _function(draw: random.Random, name: str, lines: int) -> str:
    return "\n".join([f"def {name}(entries, rate, limit):", *draw.choices(CODE, k=lines)])


def scored(trajectory: Trajectory) -> Score:
    """Return a score as `eval` would write it; half of the answers pass."""
    draw = random.Random(f"score {trajectory.id}")
    total = len(trajectory.task.test_cases)
    delivered = trajectory.answer != NO_ANSWER
    passed = draw.choice((total, draw.randrange(total))) if delivered else 0
    verdicts = {
        name: "passed" if number < passed else "wrong: gives 7, wanted 12"
        for number, name in enumerate(trajectory.task.test_cases)
    }
    return Score(
        id=trajectory.id,
        task_id=trajectory.task_id,
        reward=passed / total,
        passed=passed,
        total=total,
        outcome="passed" if passed == total else "failed" if delivered else "no_answer",
        detail={"tests": verdicts},
    )


def ranked(trajectory: Trajectory) -> Iterator[CandidateRow]:
    for turn in trajectory.agent_turns:
        draw = random.Random(f"rank {trajectory.id} {turn}")
        texts = [_prose(draw, 60) for _ in range(CANDIDATES)]
        candidates = [
            Candidate(text=text, advantage=draw.uniform(-1, 1), logprob=-1.0, reference=-1.0, tokens=90)
            for text in texts
        ]
        taken = Candidate(text=trajectory.dialogue_history[turn].said, advantage=draw.uniform(-1, 1), tokens=90)
        yield CandidateRow(
            trajectory_id=trajectory.id,
            task_id=trajectory.task_id,
            turn=turn,
            observation=tuple(trajectory.observation(turn, None)),
            candidates=tuple(candidates),
            taken=taken,
        )


def paired(row: CandidateRow) -> Iterator[Pair]:
    order = sorted(row.candidates, key=lambda candidate: candidate.advantage)
    for number, (worse, better) in enumerate(zip(order[:2], reversed(order), strict=False)):
        yield Pair.of(row, str(number), better, worse)
