"""A run in which an agent was scored, a critic and an actor were trained, and the actor was scored on the same tasks;
in the form of the stages, with small files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sweet.runs.jsonl import JsonlWriter
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.tasks.trajectory import dump
from tests.view.conftest import AnyConfig, score, trajectory

BEFORE = (0.0, 0.5, 1.0, 0.0, 0.5, 1.0)
AFTER = (1.0, 0.5, 1.0, 0.0, 1.0, 1.0)
"""Rewards of six dialogues of three tasks."""
ADVANTAGES = {1: (0.4, 0.2, -0.2, 0.0), 3: (0.1, -0.3)}
"""Advantages of the candidates by index in the dialogue of t001."""
LOSSES = (0.9, 0.7, 0.8, 0.6)
BEST_OF = {
    "critic": "critic-1",
    "n": {
        str(n): {
            "tasks": 3,
            "critic": mean,
            "critic_ci_low": mean - 0.1,
            "critic_ci_high": mean + 0.1,
            **{"random": 0.5, "random_ci_low": 0.4, "random_ci_high": 0.6},
            **{"oracle": 0.75, "oracle_ci_low": 0.6, "oracle_ci_high": 0.9},
        }
        for n, mean in ((1, 0.5), (2, 0.7))
    },
    "left_out": 0,
}


def report_run(path: Path) -> Run:
    run = Run.create(path, task="code")
    before = _rollouts(run, "base")
    _eval(run, before, BEFORE, {"best_of": BEST_OF})
    critic = _trained(run, "train-critic", "critic", before, {"variant": "advantage", "base": "base"})
    candidates = step(run, "rank", "candidates", [_ranked(turn) for turn in ADVANTAGES], [before, critic])
    actor = _trained(
        run, "train-actor", "actor", candidates, {"algorithm": "sweet", "base": "base", "protocol": "paper"}
    )
    after = _rollouts(run, str(run.path / actor.path))
    _eval(run, after, AFTER, {})
    return run


def online_run(path: Path, *, done: bool, task: str = "code") -> Run:
    """Return a run with an actor that was trained online; one of its steps taught nothing, in one a dialogue failed.

    Tasks of the kind html are never solved.
    """
    run = Run.create(path, task=task)
    log: list[dict[str, Any]] = [
        {
            **{"step": number, "tokens": 1000 * number, "seconds": 10.0 * number, "dialogues": 8, "failed": 0},
            **{"reward": 0.1 * number, "success": 0.05 * number, "leak_rate": 0.0, "kl_start": 0.01 * number},
            **{"entropy_first": 1.0, "entropy_late": 0.5, "behind": 0.5, "equal_groups": 0.25, "limits": 0.0},
            **{"play_seconds": 2.0, "train_seconds": 3.0, "update_seconds": 0.5},
        }
        for number in range(1, 7)
    ]
    for row in log[:1] + log[2:]:
        row["loss"] = 0.5
    if task == "html":
        for row in log:
            row["success"] = None
    log[2]["validation"], log[5]["validation"] = 0.3, 0.2
    log.insert(3, {"failed": "task-1/0/0", "step": 3, "error": "no answer", "seconds": 99.0})
    metrics = {
        **{"ended": "collapse", "collapse": "step 6: the mean reward fell", "kept_step": 3, "seconds": 70.0},
        **{"completion_tokens": 6000, "episodes": 48, "reward": 0.4},
        **{"play_seconds": 12.0, "train_seconds": 18.0, "update_seconds": 3.0},
    }
    meta = {"algorithm": "grpo", "base": "micro", "protocol": "paper"}
    step(run, "train-online", "actor", [], meta=meta, metrics=metrics if done else {}, log=log)
    return run


def step(
    run: Run,
    stage: str,
    kind: Kind,
    rows: Iterable[Any],
    inputs: Sequence[Artifact] = (),
    *,
    meta: dict[str, Any] | None = None,
    metrics: dict[str, Any] | None = None,
    environment: dict[str, Any] | None = None,
    log: Iterable[dict[str, Any]] = (),
) -> Artifact:
    """Make one attempt and its artifact; models are folders."""
    folder = kind in ("critic", "actor")
    with run.attempt(stage, AnyConfig(), inputs=inputs, environment=environment) as attempt:
        with JsonlWriter(attempt.metrics_path) as writer:
            for row in log:
                writer.write(row)
        draft = attempt.start_artifact(kind, "" if folder else ".jsonl", meta=meta)
        count = None
        if folder:
            (draft.path / "weights").write_bytes(b"0")
        else:
            with JsonlWriter(draft.path) as writer:
                for row in rows:
                    writer.write(row)
                count = writer.rows
        attempt.metrics.update(metrics or {})
        return attempt.finish_artifact(draft, rows=count)


def _rollouts(run: Run, agent: str) -> Artifact:
    meta = {"task": "code", "tasks": "micro", "split": "test", "agent": agent, "sim": "scripted", "max_turns": 10}
    rows = [dump(trajectory(number)) for number in range(6)]
    rows[4]["outcome"] = "deadline"
    return step(run, "rollout", "rollouts", rows, meta=meta, environment={"agent_model": agent})


def _eval(run: Run, rollouts: Artifact, rewards: Sequence[float], more: dict[str, Any]) -> Artifact:
    mean = sum(rewards) / len(rewards)
    metrics = {"trajectories": 6, "tasks": 3, "success_rate": mean, "faults": 1}
    metrics |= {"success_rate_ci_low": mean - 0.2, "success_rate_ci_high": mean + 0.2}
    rows = [score(number, reward) for number, reward in enumerate(rewards)]
    meta = {"scorer": "strict", "sandbox": "bwrap"}
    return step(run, "eval", "scores", rows, [rollouts], meta=meta, metrics={**metrics, **more})


def _trained(run: Run, stage: str, kind: Kind, source: Artifact, meta: dict[str, Any]) -> Artifact:
    log: list[dict[str, Any]] = [
        {"step": number, "loss": loss, "accuracy": 0.5, "lr": 1e-5, "tokens_per_second": 100.0}
        for number, loss in enumerate(LOSSES, 1)
    ]
    log.append({"step": len(LOSSES), "heldout_accuracy": 0.75})
    return step(run, stage, kind, [], [source], meta=meta, metrics={"loss": LOSSES[-1], "epochs": 1}, log=log)


def _ranked(turn: int) -> dict[str, Any]:
    history = dump(trajectory(1))["dialogue_history"][:turn]
    return {
        "trajectory_id": "t001",
        "task_id": "task-0",
        "turn": turn,
        "observation": [{"role": entry["role"], "content": entry["content"]} for entry in history],
        "candidates": [{"text": f"reply {value}", "advantage": value} for value in ADVANTAGES[turn]],
        "taken": {"text": "reply", "advantage": ADVANTAGES[turn][0]},
    }


def rewrite(run: Run, change: Any) -> None:
    """Change the manifest by hand."""
    path = run.path / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    change(manifest)
    path.write_text(json.dumps(manifest), encoding="utf-8")
