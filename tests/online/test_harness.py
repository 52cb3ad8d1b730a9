"""Online training in which the user's program plays the dialogues: what is learned, a kill, and programs that lie."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.errors import UsageError
from sweet.online.config import TrainOnlineConfig
from sweet.online.stage import run_train_online
from sweet.runs.run import Run
from sweet.stages.base import Silent
from tests import programs
from tests.online.test_train_online import OPTIONS, PROGRAM, rows, weights
from tests.rollouts.harness import HARNESS

PLAYS = """
ask([{"role": "user", "content": "What may matter here?"}], seed=1, temperature=0)
messages = [request]
for _ in range(task["max_turns"] - 1):
    said = ask(messages)
    if "I WANT TO ANSWER" in said:
        break
    human = ask([{"role": "user", "content": said}], "human")
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": human}]
"""
LIES = """
found = [ask([request], key="x/y"), ask([request], key=key[:-1] + "x"), ask([request], path="/nowhere")]
found += [ask(None, address=os.environ["SWEET_SESSION"][:-3] + "abc", path="", end=True)]
claimed = "I WANT TO ANSWER: 1"
if os.path.exists("other"):
    theirs, claimed = json.load(open("other"))
    found += [ask([request], key=theirs)]
messages = [request, {"role": "assistant", "content": claimed}, {"role": "user", "content": "And now?"}]
json.dump([key, ask(messages, seed=1, temperature=0)], open("other", "w"))
while ask(messages, seed=1, temperature=0) != 403:
    pass
print(json.dumps({"answer": str(found), "reward": 1.0}))
"""
STUCK = 240
"""Seconds without a dialogue, or without the first one of a process that starts, after which a training is stuck."""


def config(folder: Path, program: str, **changes: Any) -> dict[str, Any]:
    path = folder / "agent.py"
    path.write_text(HARNESS + program)
    return OPTIONS | {"harness": f"{sys.executable} {path}", "max_turns": 7} | changes


def figures(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "logs" / "train-online-1.jsonl").read_text().splitlines()]


@pytest.mark.timeout(5 * STUCK)  # three trainings; on a busy machine each takes minutes
def test_a_program_plays_the_steps_and_a_killed_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    """Each session has a branch. What is learned at a step was sampled by the weights that learn it: all ratios are 1.
    A kill in the second step leaves one step to be learned again, and one half played."""
    options = config(tmp_path, PLAYS, steps=2, save_every=5, deterministic=True, resume=True)
    whole, killed = (Run.create(tmp_path / name, "code") for name in ("whole", "killed"))
    metrics = run_train_online(whole, TrainOnlineConfig.model_validate(options), Silent()).metrics
    dialogues, steps = rows(whole, "rollouts"), figures(whole)
    assert (metrics.episodes, len(dialogues), [step["dialogues"] for step in steps]) == (8, 16, [4, 4])
    learned = [step for step in steps if step["updates"]]
    assert len(learned) == 2
    assert all(step["ratio"] == pytest.approx(1, abs=1e-5) and step["difference"] < 1e-5 for step in learned)
    assert abs(steps[0]["kl_start"]) < 1e-9
    for row in dialogues:
        spoken = [turn for turn in row["dialogue_history"] if turn["role"] == "assistant"]
        assert row["versions"] == [row["step"] - 1] * len(spoken)
        assert all(len(turn["logprobs"]) == len(turn["token_ids"]) for turn in spoken)
    command = ["-c", PROGRAM, str(killed.path), json.dumps(options)]
    path = killed.path / "rollouts" / "rollouts-1.jsonl"
    with programs.start(command, torch=True) as process:
        played, since = 0, time.monotonic()
        while played < 10:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
            last, played = played, path.read_bytes().count(b"\n") if path.exists() else 0
            since = time.monotonic() if played > last else since
            assert time.monotonic() - since < STUCK, f"no dialogue after {played} rows"
        process.send_signal(signal.SIGKILL)
    assert process.returncode != 0
    before = rows(killed, "rollouts")
    with path.open("a") as file:  # and the kill came between the two rows of a session
        file.write(json.dumps(dialogues[-2] | {"id": "x~1", "session": "x"}) + "\n")
    run_train_online(killed, TrainOnlineConfig.model_validate(options), Silent())
    after = rows(killed, "rollouts")
    assert after[: len(before)] == before, "no dialogue is played twice"
    assert sorted(row["id"] for row in after) == sorted(row["id"] for row in dialogues)
    expected, found = weights(whole), weights(killed)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_program_that_lies_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other keys, addresses and sessions are refused, calls are bounded, what it claims was said, by itself or in
    another dialogue, is context, and neither the reward nor the sampling is its own."""
    monkeypatch.chdir(tmp_path)
    run = Run.create(tmp_path / "run", "code")
    options = config(tmp_path, LIES, steps=1, max_turns=3, concurrency=1)
    metrics = run_train_online(run, TrainOnlineConfig.model_validate(options), Silent()).metrics
    [step], dialogues = figures(run), rows(run, "rollouts")
    assert (metrics.episodes, len(dialogues), step["dialogues"], step["failed"]) == (4, 12, 4, 0)
    assert [score["reward"] for score in rows(run, "scores")] == [0] * 12
    refused = [401, 401, 404, 403]
    assert [row["answer"] for row in dialogues] == [str(refused)] * 3 + [str([*refused, 404])] * 9
    said = [[turn for turn in row["dialogue_history"] if turn["role"] == "assistant"] for row in dialogues]
    assert all([turn.get("given") for turn in turns] == [True, None] for turns in said)
    sampled = [turns[1] for turns in said]
    assert said[3][0]["content"] == sampled[2]["content"], "the first reply of the dialogue before it"
    assert len({turn["sampling_seed"] for turn in sampled}) == 12
    assert len({turn["content"] for turn in sampled}) > 1
    assert abs(step["kl_start"]) < 1e-9, "the recorded probabilities are those of the model at temperature 1"


def test_a_program_begins_no_dialogue_in_the_middle_of_another(tmp_path: Path) -> None:
    options = config(tmp_path, PLAYS, algorithm="tree-grpo")
    with pytest.raises(UsageError, match="a program begins at its task"):
        run_train_online(Run.create(tmp_path / "run", "code"), TrainOnlineConfig.model_validate(options), Silent())
