"""`sweet rollout`: plays dialogues and writes each as one line when it ends.

    assignments      which dialogues, and the human of each
    prepare, sides   from the options to dialogues that can be played; opening both sides
    dialogue         one dialogue: how a reply is sampled, chosen and read
    runner           many dialogues at once
    metrics          what is counted of them

Each dialogue is one asyncio task, and there is no barrier between turns, so a slow dialogue delays no other
(sweet.rollouts.runner). A dialogue is named by (task, sample, seed), so the same command resumes with the dialogues
that are missing; while rollouts are unfinished, other settings are refused. What was said in unfinished dialogues is
recorded too, and they go on from there (sweet.rollouts.steps). A failure that may not come again (of a server, by the
deadline) is no result: it is logged in `logs/`, counted, and the next call goes on with the dialogue. A lasting failure
is recorded as a dialogue with its outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from sweet.gathering import run_main
from sweet.judges.opening import ChosenJudge
from sweet.rollouts.assignments import assignments_of
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.dialogue import Assignment
from sweet.rollouts.metrics import RolloutMetrics
from sweet.rollouts.prepare import Dialogues, prepare_dialogues
from sweet.rollouts.runner import DialogueRunner, FinishedDialogues
from sweet.rollouts.steps import StepsFile
from sweet.runs.jsonl import scan_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.stages.critics import warn_if_at_chance
from sweet.stages.frame import Frame
from sweet.tasks.trajectory import Trajectory
from sweet.units import count

UNFINISHED = {
    "length": "cut off by its limit of tokens: --max-tokens, or the server's own",
    "content_filter": "withheld, whole or in part, by the content filter of the server",
}
"""What is said of the agent's replies if a tenth of them or more have such a finish reason."""


def run_rollout(run: Run, config: RolloutConfig, reporter: Reporter) -> StageResult[RolloutMetrics]:
    """Play the dialogues that are missing and return the metrics of all of them."""
    dialogues = prepare_dialogues(run, config, reporter)
    kind, tasks, humans, judge = dialogues.kind, dialogues.tasks, dialogues.humans, dialogues.judge
    if judge is not None:
        _say_choice(run, judge, config.best_of or 1, reporter)
    with dialogues.frame("rollout", run, config, reporter) as frame:
        rows = frame.rows("rollouts", dialogues.meta(config.agent), Trajectory)
        finished = FinishedDialogues(scan_jsonl(rows.path), sim=humans.title)
        requested = assignments_of(tasks, config, humans)
        missing = [assignment for assignment in requested if assignment.id not in finished.ids]
        if finished.ids:
            frame.say(f"Finished already: {count(len(finished.ids), 'dialogue')}; missing: {len(missing):,}.")
        runner = DialogueRunner(
            kind=kind,
            rules=dialogues.rules(),
            deadline=config.deadline,
            limit=config.concurrency,
            writer=rows,
            log=frame.log,
            finished=finished,
            live=frame.live,
            budget=frame.budget,
            failures=frame.failures,
        )
        if missing:
            frame.serving.replies = len(missing) * config.max_turns * (config.best_of or 1)
            with StepsFile(rows.path, finished.ids) as steps:
                if under_way := len(steps.under_way):
                    frame.say(f"Under way, and gone on with: {count(under_way, 'dialogue')}.")
                runner.steps = steps
                missing.sort(key=lambda assignment: assignment.id not in steps.under_way)
                run_main(_play(frame, dialogues, runner, missing))
        cost = frame.cost_of(rows.draft)
        metrics = finished.metrics(failures=frame.failures, seconds=frame.seconds, cost=cost)
        artifact = frame.finish(rows, metrics)
        _warn(metrics, finished.finish_reasons, frame)
        failed, tried = frame.failures.count, runner.ended
        return frame.result(metrics, artifact, failed=failed, tried=tried, items="dialogues", stopped=runner.draining)


async def _play(frame: Frame, dialogues: Dialogues, runner: DialogueRunner, missing: Sequence[Assignment]) -> None:
    """Open both sides, and the judge that chooses replies if one does, and play."""
    judge = dialogues.judge
    async with AsyncExitStack() as stack:
        choosing = None
        if judge is not None:
            judging = judge.open(frame, dialogues.scorer, ray=dialogues.config.ray, by_place=True)
            choosing = await stack.enter_async_context(judging)
        agent = await dialogues.open_agent(frame.client, frame, stack)
        humans = await dialogues.open_simulated_humans(frame.client, stack, frame.run.path)
        names = ", ".join(human.name for human in humans.values())
        frame.attempt.environment |= {"agent_model": agent.model, "human": names}
        if dialogues.config.harness is not None:
            from sweet.rollouts.gateway.harness import open_harness

            opening = open_harness(agent, humans, dialogues, dialogues.rules(), frame.run.path)
            runner.harness = await stack.enter_async_context(opening)
        limiters = [limiter for client in frame.clients if (limiter := getattr(client, "limiter", None)) is not None]
        await runner.play(missing, len(missing), agent, humans, limiters, choosing)


def _say_choice(run: Run, judge: ChosenJudge, candidates: int, reporter: Reporter) -> None:
    text = f"Each reply is the best of {candidates} by {judge.title}."
    if judge.informed:
        text += " It sees the training-time information, so the success rate is not that of the agent alone."
    reporter.say(text)
    if judge.critic is not None:
        warn_if_at_chance(run, judge.critic, reporter)


def _warn(metrics: RolloutMetrics, finish_reasons: Mapping[str, int], reporter: Reporter) -> None:
    """Warn of turns that were not judged, and of replies and thoughts that were not finished."""
    if metrics.choices is not None and metrics.choices.unjudged_turns:
        reporter.warn(
            f"At {count(metrics.choices.unjudged_turns, 'turn')} the judge could judge no candidate: the first one was "
            "taken. Their rows say why (choice.unjudged)."
        )
    full, played = metrics.outcomes.get("context_overflow", 0), sum(metrics.outcomes.values())
    if 2 * full >= played > 0:
        reporter.warn(
            f"{full:,} of {count(played, 'dialogue')} ended because the context of a model was full: give its server a "
            "longer one (vllm: --max-model-len), or the dialogues fewer turns or shorter replies."
        )
    for reason, why in UNFINISHED.items():
        if 10 * (number := finish_reasons.get(reason, 0)) >= metrics.turns > 0:
            reporter.warn(f"At {number:,} of {count(metrics.turns, 'turn')} the agent's reply was {why}.")
    if metrics.thoughts is not None and metrics.thoughts.unfinished_thoughts:
        reporter.warn(
            f"At {count(metrics.thoughts.unfinished_thoughts, 'turn')} the agent thought until its tokens were spent, "
            "and said nothing: allow more by --max-tokens, or end its thoughts by --max-thought-tokens."
        )
