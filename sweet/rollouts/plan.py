"""The plan of a rollout, for `sweet rollout --dry-run`: dialogues, turns and tokens, by the rates of earlier
rollouts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from sweet.judges.opening import ChosenJudge
from sweet.llm.weights import FLOPS_PER_PARAMETER, parameter_count
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.metrics import RolloutWork
from sweet.runs.run import Run
from sweet.stages.artifacts import is_model
from sweet.stages.plans import Plan, PlanBuilder
from sweet.stages.rates import GPU, EarlierAttempt, share, times, total, whole
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind


def plan_dialogues(
    run: Run | None,
    config: RolloutConfig,
    kind: TaskKind,
    source: str,
    tasks: Sequence[Task],
    finished: Collection[str],
    requested: Collection[str],
    gpus: int | None,
    judge: ChosenJudge | None,
    readers: Sequence[str],
) -> Plan[RolloutWork]:
    """Return the plan of a rollout.

    Args:
        finished: ids of the dialogues that the run has already. requested: ids of all.
        judge: chooses among candidates. readers: the models that read each candidate for it.
    """
    builder = PlanBuilder(
        "rollout",
        run,
        config.rates,
        kind=kind.name,
        settings={**config.model_dump(mode="json"), "tasks": source},
        gpus=gpus,
        decides=("task", "agent", "sim", "best_of", "judge", "judge_model", GPU),
        compared=(
            *("tasks", "split", "max_turns", "max_tokens", "temperature", "token_limit", "prompts", "recipe"),
            *("persona", "persona_file"),
            *("max_thought_tokens", "effort", "thoughts"),
            *("window", "pictures"),
            *("concurrency", "agent_url", "sim_url", "device", "engine", "vllm_options", "ray"),
        ),
    )
    missing = len(set(requested) - set(finished))

    def in_all(name: str, metric: str, scale: Callable[[EarlierAttempt], float] = lambda _: 1.0) -> float | None:
        """Return the sum of a metric over the missing dialogues; `scale` is how many times as much it is now."""
        a_dialogue = builder.rate(
            name,
            "a dialogue",
            lambda earlier: times(scale(earlier), share(earlier.metric(metric), earlier.metric("episodes"))),
        )
        return times(missing, a_dialogue)

    turns = in_all("turns", "turns")

    def side(models: Sequence[str], prefix: str) -> tuple[float | None, float | None]:
        """Return the tokens that a side reads and writes; zero where it is scripted."""
        if not any(map(is_model, models)):
            return 0.0, 0.0
        read = in_all(f"{prefix}tokens_read", f"{prefix}prompt_tokens")

        def scale(earlier: EarlierAttempt) -> float:
            return 1.0 if prefix else candidates / _candidates(earlier)

        return read, in_all(f"{prefix}tokens_written", f"{prefix}completion_tokens", scale)

    candidates = config.best_of or 1
    agent, human = side([config.agent], ""), side(config.sims, "human_")
    judged: float | None = 0.0
    if judge is not None and (readers or judge.asked):
        asked = times(candidates, agent[0]) if judge.asked else agent[0]
        judged = total(asked, agent[1]) if is_model(config.agent) else None
        builder.assumed.append(
            "The judge reads what the agent reads and writes, a language model for each candidate again. The "
            "training-time information and the judge's own prompt and answers are not counted."
        )
    work = RolloutWork(
        tasks=len(tasks),
        dialogues=len(requested),
        missing=missing,
        turns=whole(turns),
        tokens_read=whole(agent[0]),
        tokens_written=whole(agent[1]),
        tokens_judged=None if judge is None else whole(judged),
        human_tokens_read=whole(human[0]),
        human_tokens_written=whole(human[1]),
    )
    if kind.visual:
        pages = whole(total(turns, len({task.ground_truth for task in tasks})))
        work = work.model_copy(update={"screenshots": pages})
        builder.assumed.append("Every turn shows a page of its own, and each reference is rendered once.")
    share_of_each = tuple(times(1 / len(config.sims), tokens) for tokens in human)
    models = ((config.agent, agent), *((sim, share_of_each) for sim in config.sims))
    judging = [*readers, *(model for model, _ in (judge.asked if judge else ()))]
    flops = total(
        *(times(FLOPS_PER_PARAMETER, _size(model), total(*counts)) for model, counts in models),
        *(times(FLOPS_PER_PARAMETER, parameter_count(model), judged) for model in judging),
    )
    if flops:
        builder.assumed.append("A server reads each prompt from its beginning; with prefixes kept it computes less.")
    seconds = builder.seconds_per("dialogue", lambda earlier: earlier.metric("episodes"), _servers(config))
    size = builder.rate("bytes", "a dialogue", lambda earlier: share(earlier.size, earlier.rows))
    return builder.build(work, seconds=times(missing, seconds), flops=flops, size=times(missing, size))


def _size(model: str) -> int | None:
    """Return the parameters of a side's model; 0 if it is scripted."""
    return parameter_count(model) if is_model(model) else 0


def _candidates(earlier: EarlierAttempt) -> int:
    """Return the replies that were sampled at each turn."""
    found = earlier.facts.get("best_of")
    return found if isinstance(found, int) and found > 0 else 1


def _servers(config: RolloutConfig) -> Callable[[EarlierAttempt], float]:
    """Return how many times as many servers there are now, the smaller of both sides."""

    def speedup(earlier: EarlierAttempt) -> float:
        now = {"agent_url": config.agent_url, "sim_url": config.sim_url}
        then = {side: earlier.facts.get(side) or [] for side in now}
        return min((len(urls) / len(then[side]) for side, urls in now.items() if urls and then[side]), default=1.0)

    return speedup
