"""`sweet label`: preferences between whole dialogues, from their scores.

Per task the first of the best dialogues is chosen over every dialogue with a lower reward, and only where the best
one solves the task: a preference between two failures says little about what to do. The training-time information is
not copied here; whoever trains on a preference takes it from the dialogue's task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pydantic import Field

from sweet.errors import SweetError
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageConfig, StageResult
from sweet.stages.rows import Preference
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import FAULTS, Trajectory

SOLVED = 1.0
"""The reward of a solved task: every hidden test passed."""


class LabelConfig(StageConfig):
    from_: str | None = None
    """Scores to label by; the newest finished ones where not given."""
    margin: float = Field(default=0.0, ge=0, le=1)
    """Least difference of the rewards of a preference; 0 takes every lower reward."""


def run_label(run: Run, config: LabelConfig, reporter: Reporter) -> StageResult:
    """Write the preferences of the run's scores.

    Raises:
        SweetError: no task has both a dialogue that solves it and one that does not.
    """
    scores = run.find("scores", config.from_, needed_by="label")
    rollouts = run.input_of(scores, "rollouts")
    reporter.say(f"Labelling the dialogues of {rollouts.id} by {scores.id}.")
    with run.attempt("label", config, inputs=[scores, rollouts]) as attempt:
        rewards = {row.id: row.reward for row in read_jsonl(run.file(scores), Score) if row.reward is not None}
        known = [t for t in read_jsonl(run.file(rollouts), Trajectory) if t.id in rewards]
        usable = usable_dialogues(known, rewards)
        found = list(preferences(usable, rewards, config.margin))
        if not found:
            raise _nothing(usable, rewards, config.margin)
        draft = attempt.start_artifact("preferences", meta={"rollouts": rollouts.id, "margin": config.margin})
        with JsonlWriter(draft.path) as writer:
            for preference in found:
                writer.write(preference)
        metrics = {
            "pairs": len(found),
            "tasks": len({t.task_id for t in usable}),
            "tasks_with_pairs": len({preference.task_id for preference in found}),
            "trajectories": len(usable),
            "left_out": len(known) - len(usable),
        }
        attempt.metrics.update(metrics)
        artifact = attempt.finish_artifact(draft, rows=len(found))
    return StageResult("label", run.path, metrics, [artifact])


def usable_dialogues(trajectories: Iterable[Trajectory], rewards: Mapping[str, float]) -> list[Trajectory]:
    """The dialogues that something can be learned from: rewarded, not ended by a fault, with a turn of the agent."""
    return [t for t in trajectories if t.id in rewards and t.outcome not in FAULTS and t.agent_turns]


def preferences(
    trajectories: Iterable[Trajectory], rewards: dict[str, float], margin: float = 0.0
) -> Iterator[Preference]:
    """The preferences of each task, tasks in the order of their ids.

    Dialogues are taken by sample number and then in the order of the file, so that the order in which concurrent
    dialogues happened to end decides nothing.
    """
    tasks: dict[str, list[Trajectory]] = {}
    for trajectory in sorted(trajectories, key=lambda t: t.sample):
        tasks.setdefault(trajectory.task_id, []).append(trajectory)
    for task_id in sorted(tasks):
        dialogues = tasks[task_id]
        best = max(dialogues, key=lambda t: rewards[t.id])
        top = rewards[best.id]
        if top < SOLVED:
            continue
        for other in dialogues:
            low = rewards[other.id]
            if low < top and top - low >= margin:
                yield Preference(
                    task_id=task_id, chosen=best.id, rejected=other.id, chosen_reward=top, rejected_reward=low
                )


def _nothing(usable: list[Trajectory], rewards: dict[str, float], margin: float) -> SweetError:
    tasks = {t.task_id for t in usable}
    solved = sum(rewards[t.id] >= SOLVED for t in usable)
    why = f"{len(usable)} dialogues on {len(tasks)} tasks, {solved} of them solve theirs"
    if margin:
        why += f", --margin {margin:g}"
    samples = max(4, 2 * max((t.sample for t in usable), default=0) + 2)
    return SweetError(
        f"There is nothing to prefer: no task has a dialogue that solves it and a worse one ({why}).",
        fix=f"sweet rollout with more dialogues a task (--samples {samples}) or more tasks, sweet eval, sweet label",
    )
