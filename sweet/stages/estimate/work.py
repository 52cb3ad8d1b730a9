"""The work of the stages that train nothing: what they take is counted as they take it, the rest told by rates.

The stages hand over what they chose (tasks, rows, turns); `sweet.stages.estimate` says what a plan holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweet.device import CORES
from sweet.llm.weights import parameter_count
from sweet.runs.environment import NODES
from sweet.runs.run import Run
from sweet.stages.dialogue import NO_MODEL
from sweet.stages.estimate.rates import GPU, Outlook, Past, share, times, total
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import Trajectory

if TYPE_CHECKING:
    from sweet.stages.evaluate import EvalConfig
    from sweet.stages.rollout import RolloutConfig

FORWARD = 2
"""Operations a parameter and token (arXiv 2001.08361, section 2.1)."""


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
    flops = total(*(times(FORWARD, _size(model), total(*counts)) for model, counts in models))
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


def plan_scoring(
    run: Run,
    config: EvalConfig,
    kind: TaskKind,
    trajectories: Iterable[Trajectory],
    *,
    gpus: int | None,
    machines: Sequence[int],
) -> dict[str, Any]:
    """An evaluation: tests to run, or pages to render that have no screenshot yet.

    Args:
        machines: the cores of each that will do it.
    """
    outlook = Outlook(
        "eval",
        run,
        config.rates,
        kind=kind.name,
        settings=config.model_dump(mode="json"),
        gpus=gpus,
        decides=("scorer", "similarity", "best_of", GPU),
        tells=("workers", "sandbox", "device", "tolerance"),
    )
    dialogues = tests = 0
    tasks: dict[str, int] = {}
    answers: set[tuple[str, str]] = set()
    pages: set[str] = set()
    for trajectory in trajectories:
        dialogues += 1
        tests += len(trajectory.task.test_cases)
        tasks[trajectory.task_id] = len(trajectory.task.test_cases)
        answers.add((trajectory.task_id, trajectory.answer))
        if kind.visual:
            pages |= _pages(trajectory)
    work: dict[str, Any] = {"dialogues": dialogues, "tasks": len(tasks), "answers": len(answers)}
    if kind.visual:
        work |= {"screenshots": len(pages), "screenshots_missing": _unseen(run.path, pages)}
    else:
        work |= {"tests": tests, "reference_tests": sum(tasks.values())}
    if config.best_of is not None:
        outlook.assumed.append("What the critic reads for --best-of is not counted among the operations.")

    def faster(past: Past) -> float:
        """By the workers where they were given both times, by the cores where both times they were not."""
        workers, nodes, cores = (_number(past.facts.get(name)) for name in ("workers", NODES, CORES))
        if config.workers and workers and nodes:
            return config.workers * len(machines) / (workers * nodes)
        return sum(machines) / cores if cores and not (config.workers or workers) else 1.0

    seconds = outlook.pace("dialogue", lambda past: past.metric("trajectories"), faster)
    size = outlook.rate("bytes", "a dialogue", lambda past: share(past.size, past.rows))
    return outlook.plan(work, seconds=times(dialogues, seconds), size=times(dialogues, size))


def _pages(trajectory: Trajectory) -> set[str]:
    """What is rendered to score a dialogue: the page that counts, where there is one, and the reference."""
    from sweet.tasks.html.page import extract_page
    from sweet.tasks.html.scoring import last_page, reference_page

    return {reference_page(trajectory, extract_page)} | ({last_page(trajectory, extract_page) or ""} - {""})


def _unseen(folder: Path, pages: Collection[str]) -> int:
    """How many of the pages the run's screenshots do not have."""
    from sweet.render.page import RenderSettings, page_key
    from sweet.render.store import SCREENSHOTS, ScreenshotStore

    store, settings = ScreenshotStore(folder / SCREENSHOTS), RenderSettings()
    return sum(not store.has(page_key(page, settings)) for page in pages)


def plan_rows(
    run: Run, stage: str, rates: Sequence[str], work: Mapping[str, Any], *, of: tuple[str, str], count: int, rows: int
) -> dict[str, Any]:
    """A stage that only sorts: `count` of something, named `of` by its word and by its metric, into so many rows."""
    unit, metric = of
    outlook = Outlook(stage, run, rates, kind=run.manifest().task, settings={}, gpus=0, decides=(), tells=())
    seconds = outlook.pace(unit, lambda past: past.metric(metric))
    size = outlook.rate("bytes", "a row", lambda past: share(past.size, past.rows))
    return outlook.plan(work, seconds=times(count, seconds), flops=0.0, size=times(rows, size))


def whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None
