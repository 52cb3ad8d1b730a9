"""The work of a rollout, for `sweet rollout --dry-run`: dialogues, turns, tokens, by the rates of earlier rollouts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from sweet.llm.weights import FLOPS_PER_PARAMETER, parameter_count
from sweet.rollouts.config import RolloutConfig
from sweet.runs.run import Run
from sweet.stages.artifacts import NO_MODEL
from sweet.stages.rates import GPU, Outlook, Past, share, times, total, whole
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind


def plan_dialogues(
    run: Run | None,
    config: RolloutConfig,
    kind: TaskKind,
    source: str,
    tasks: Sequence[Task],
    there: Collection[str],
    wanted: Collection[str],
    gpus: int | None,
) -> dict[str, Any]:
    """A rollout: `wanted` are the ids of all dialogues, `there` of those that the run has already."""
    outlook = Outlook(
        "rollout",
        run,
        config.rates,
        kind=kind.name,
        settings={**config.model_dump(mode="json"), "tasks": source},
        gpus=gpus,
        decides=("task", "agent", "sim", GPU),
        tells=(
            *("tasks", "split", "max_turns", "max_tokens", "temperature", "token_limit", "prompts", "recipe"),
            *("concurrency", "agent_url", "sim_url", "device", "engine", "vllm_options", "ray"),
        ),
    )
    missing = len(set(wanted) - set(there))

    def in_all(name: str, metric: str) -> float | None:
        a_dialogue = outlook.rate(name, "a dialogue", lambda past: share(past.metric(metric), past.metric("episodes")))
        return times(missing, a_dialogue)

    turns = in_all("turns", "turns")

    def side(model: str, prefix: str, metrics: str) -> tuple[float | None, float | None]:
        """Tokens that a side reads and writes; none where it is of rules."""
        if model in NO_MODEL:
            return 0.0, 0.0
        kinds = (("read", "prompt"), ("written", "completion"))
        read, written = (in_all(f"{prefix}tokens_{name}", f"{metrics}{metric}_tokens") for name, metric in kinds)
        return read, written

    sides = {"": side(config.agent, "", ""), "human_": side(config.sim, "human_", "human_")}
    tokens = {
        f"{prefix}tokens_{name}": whole(count)
        for prefix, counts in sides.items()
        for name, count in zip(("read", "written"), counts, strict=True)
    }
    pages = {"screenshots": whole(total(turns, len({task.ground_truth for task in tasks})))} if kind.visual else {}
    if kind.visual:
        outlook.assumed.append("Every turn shows a page of its own, and each reference is rendered once.")
    models = ((config.agent, sides[""]), (config.sim, sides["human_"]))
    flops = total(*(times(FLOPS_PER_PARAMETER, _size(model), total(*counts)) for model, counts in models))
    if flops:
        outlook.assumed.append("A server reads each prompt from its beginning; with prefixes kept it computes less.")
    seconds = outlook.pace("dialogue", lambda past: past.metric("episodes"), _servers(config))
    size = outlook.rate("bytes", "a dialogue", lambda past: share(past.size, past.rows))
    work = {"tasks": len(tasks), "dialogues": len(wanted), "missing": missing, "turns": whole(turns), **tokens, **pages}
    return outlook.plan(work, seconds=times(missing, seconds), flops=flops, size=times(missing, size))


def _size(model: str) -> int | None:
    """Parameters that work for a side; a side of rules has none."""
    return 0 if model in NO_MODEL else parameter_count(model)


def _servers(config: RolloutConfig) -> Callable[[Past], float]:
    """How many times as many servers there are now, of the side that has gained least."""

    def faster(past: Past) -> float:
        now = {"agent_url": config.agent_url, "sim_url": config.sim_url}
        then = {side: past.facts.get(side) or [] for side in now}
        return min((len(urls) / len(then[side]) for side, urls in now.items() if urls and then[side]), default=1.0)

    return faster
