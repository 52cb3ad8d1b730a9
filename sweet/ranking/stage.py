"""`sweet rank`: candidates at a sample of turns, and the advantage of each by the critic or another judge.

A turn is one request for `candidates` replies to what the agent had seen there. While the next turns are sampled, those
that have come back are judged (`sweet.ranking.judge`), together with the reply that was really given. The replies of an
earlier ranking can be judged once more by somebody else (`replies`), so that judges differ and nothing else does. A
turn is named by (dialogue, index), so the same command goes on with the turns that are missing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sweet.cluster.nodes import nodes_of
from sweet.errors import SweetError, UsageError
from sweet.ranking.config import RankConfig
from sweet.ranking.control_judges import Chance, Oracle, check_known
from sweet.ranking.credit import Knowledge, credit_figures
from sweet.ranking.judge import CriticJudge, Judge
from sweet.ranking.llm_judge import JudgePrompt
from sweet.ranking.on_ray import SpreadJudge, open_spread_judge
from sweet.ranking.sampler import Desk
from sweet.ranking.turns import Key, Place, given_places, sample_places
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_of, agent_system, recorded_model
from sweet.stages.base import (
    Reporter,
    StageResult,
    option_key,
)
from sweet.stages.critics import CriticSettings, load_critic, load_untrained, tell_dropped
from sweet.stages.failures import check_failures
from sweet.stages.models import belongs_to, gpus_held, plan_models
from sweet.stages.rates import GPUS
from sweet.stages.rows import Basis, CandidateRow
from sweet.tasks.trajectory import Trajectory


def run_rank(run: Run, config: RankConfig, reporter: Reporter) -> StageResult:
    """Sample and score candidates, and write one row a turn.

    Raises:
        TooManyFailures: more turns failed than `fail_on_error` allows; the others are kept.
    """
    critic, replies, rollouts, given, agent, places = _chosen(run, config)
    knowledge = Knowledge.about(run, rollouts)
    if config.judge == "oracle":
        check_known(knowledge, places)
    of = f"the replies of {replies.id}" if replies else f"replies of {agent} in {rollouts.id}"
    reporter.say(f"Ranking {of} by {critic.id if critic else config.judge_model or f'the judge {config.judge}'}.")
    models = _models(config, agent)
    local = plan_models(config, models, reporter, others=int(config.judge in BY_CRITIC))
    meta: dict[str, Any] = {"agent": replies.meta.get("agent") if replies else agent, "judge": config.judge}
    meta |= {"replies": replies.id} if replies else {}
    meta |= _judge_meta(run, config, critic, rollouts)
    inputs = [artifact for artifact in (critic, replies, rollouts) if artifact is not None]
    with run.attempt("rank", config, inputs=inputs, environment={GPUS: _gpus(config, models)}) as attempt:
        draft = attempt.start_artifact("candidates", meta=meta, resume=True)
        kept = {row.key for row in read_jsonl(draft.path, CandidateRow)} if draft.path.exists() else set()
        missing = [place for place in places if place.key not in kept]
        if kept:
            reporter.say(f"{len(kept)} turns are there already, {len(missing)} to go.")
        with JsonlWriter(draft.path) as writer, JsonlWriter(attempt.metrics_path) as log:
            if missing:
                with _judging(run, config, critic, rollouts, knowledge, reporter) as judge:
                    system = agent_system(run, rollouts)
                    desk = Desk(config, agent, system, given, judge, writer, log, reporter, belongs_to(local, attempt))
                    asyncio.run(desk.rank(missing))
                    attempt.environment |= desk.served
                    if isinstance(judge, SpreadJudge):
                        attempt.environment |= judge.environment | {GPUS: _gpus(config, models, judge.gpus)}
                    if isinstance(judge, (CriticJudge, SpreadJudge)):
                        tell_dropped(judge, reporter)
            rows = writer.rows
        metrics = _metrics(read_jsonl(draft.path, CandidateRow)) | {"failed": len(places) - rows}
        tasks = {place.trajectory.task_id: place.trajectory.task for place in places}
        metrics |= credit_figures(read_jsonl(draft.path, CandidateRow), tasks, knowledge)
        attempt.metrics.update(metrics)
        artifact = attempt.finish_artifact(draft, rows=rows)
        result = StageResult("rank", run.path, metrics, [artifact])
        failed, log_path = len(places) - rows, attempt.metrics_path
        check_failures(failed, len(missing), config.fail_on_error, what="turns", log=log_path, result=result)
    return result


def plan_rank(run: Run, config: RankConfig, reporter: Reporter) -> dict[str, Any]:
    """What `run_rank` would do (`sweet.stages.estimate`)."""
    from sweet.ranking.plan import kept_turns, plan_ranking

    chosen = _chosen(run, config)
    critic, replies, rollouts, _, agent, places = chosen
    reporter.say(f"Looking at the turns of {rollouts.id}.")
    kept = kept_turns(run, config, [artifact for artifact in (critic, replies, rollouts) if artifact is not None])
    missing = [place for place in places if place.key not in kept]
    judges, nodes = _readers(run, config, chosen), []
    if config.ray is not None and config.device != "cpu":
        nodes = nodes_of(config.ray)
    gpus = _gpus(config, _models(config, agent), sum(node.gpus for node in nodes))
    return plan_ranking(
        run, config, places, missing, rollouts=rollouts, critic=critic, agent=agent, judges=judges, gpus=gpus
    )


def _readers(run: Run, config: RankConfig, chosen: _Chosen) -> list[str]:
    """The models that read each reply: a critic, and the reference where it is measured against one."""
    if chosen.critic is None:
        return [_start(run, config, chosen.rollouts)] * 2 if config.judge == "untrained" else []
    path = str(run.file(chosen.critic))
    if chosen.critic.meta.get("variant") == "regression":
        return [path]
    return [path, config.reference or recorded_model(run, chosen.critic, "base")]


class _Chosen(NamedTuple):
    """What is ranked: the places, replies that are given there, and who is asked for them where they are not."""

    critic: Artifact | None
    replies: Artifact | None
    rollouts: Artifact
    given: dict[Key, CandidateRow]
    agent: str | None
    places: list[Place]


def _chosen(run: Run, config: RankConfig) -> _Chosen:
    _check(config)
    critic = run.find("critic", config.from_, needed_by="rank") if config.judge == "critic" else None
    replies = run.find("candidates", config.replies, needed_by="rank --replies") if config.replies else None
    rollouts = run.input_of(replies, "rollouts") if replies else _rollouts(run, critic, config.rollouts)
    given = {row.key: row for row in read_jsonl(run.file(replies), CandidateRow)} if replies else {}
    agent = None if replies else config.agent or agent_of(run, rollouts, "--agent")
    dialogues = list(read_jsonl(run.file(rollouts), Trajectory))
    if replies:
        places = given_places(dialogues, given, run.file(replies))
    else:
        places = sample_places(dialogues, seed=config.seed, fraction=config.fraction, limit=config.limit)
    if not places:
        raise SweetError("The dialogues have no turn of the agent.", where=rollouts.id, fix="sweet rollout")
    return _Chosen(critic, replies, rollouts, given, agent, places)


def _models(config: RankConfig, agent: str | None) -> list[tuple[str, list[str]]]:
    """The models that are asked for something, with their addresses."""
    models = [] if agent is None else [(agent, config.agent_url)]
    return models if config.judge_model is None else [*models, (config.judge_model, config.judge_url)]


def _gpus(config: RankConfig, models: list[tuple[str, list[str]]], of_nodes: int = 0) -> int | None:
    """GPUs that are held, those of a cluster's nodes among them; see `gpus_held`."""
    own: list[list[str]] = [[]] if config.judge in BY_CRITIC and config.ray is None else []
    here = gpus_held(config.device, [*own, *(urls for _, urls in models)])
    return None if here is None else here + of_nodes


def _judge_meta(run: Run, config: RankConfig, critic: Artifact | None, rollouts: Artifact) -> dict[str, Any]:
    """What there is to know of the judge."""
    if critic is not None:
        return {"critic": critic.id}
    if config.judge == "llm":
        prompt = JudgePrompt.of(config.judge_prompt)
        return {"judge_model": config.judge_model, "judge_prompt": prompt.digest, "informed": prompt.informed}
    return {"reference": _start(run, config, rollouts)} if config.judge == "untrained" else {}


@contextmanager
def _judging(
    run: Run,
    config: RankConfig,
    critic: Artifact | None,
    rollouts: Artifact,
    knowledge: Knowledge,
    reporter: Reporter,
) -> Iterator[Judge | JudgePrompt]:
    """Who judges, while the block lasts; of a language model what it is asked."""
    if config.judge in BY_CRITIC:
        load = partial(_load, run.path.absolute(), config, critic.id if critic else None, rollouts.id)
        if config.ray is None:
            yield load(reporter)
            return
        with open_spread_judge(config.ray, load, config.device, reporter.say) as judge:
            yield judge
    elif config.judge == "oracle":
        yield Oracle(knowledge)
    else:
        yield Chance(config.seed) if config.judge == "random" else JudgePrompt.of(config.judge_prompt)


def _load(path: Path, config: RankConfig, critic: str | None, rollouts: str, reporter: Reporter) -> CriticJudge:
    """The critic of the run, or the model that it would start from, to judge here."""
    run = Run.open(path)
    if critic is None:
        start = _start(run, config, run.find("rollouts", rollouts, needed_by="rank"))
        return CriticJudge(load_untrained(start, _critic_settings(config)), "untrained")
    artifact = run.find("critic", critic, needed_by="rank")
    basis: Basis = "regression" if artifact.meta.get("variant") == "regression" else "critic"
    critic_settings = _critic_settings(config)
    loaded = load_critic(run, artifact, reporter, critic_settings, reference=config.reference, recipe=config.recipe)
    return CriticJudge(loaded, basis)


def _critic_settings(config: RankConfig) -> CriticSettings:
    return CriticSettings(config.device, config.max_length, config.micro_batch_tokens, config.packing)


def _start(run: Run, config: RankConfig, rollouts: Artifact) -> str:
    """The model that a critic would start from."""
    return config.reference or agent_of(run, rollouts, "--reference")


BY_CRITIC = ("critic", "untrained")
"""Judges that are models which read."""

_OPTIONS_OF = {
    **dict.fromkeys(("judge_model", "judge_url", "judge_prompt"), ("llm",)),
    **dict.fromkeys(("from_", "recipe"), ("critic",)),
    **dict.fromkeys(("reference", "max_length", "ray"), BY_CRITIC),
}
"""Options that some judges take, and which."""

_SAMPLING = ("rollouts", "candidates", "fraction", "limit", "agent", "agent_url", "temperature", "max_tokens")
"""Options of what is not done where the replies are given."""


def _check(config: RankConfig) -> None:
    """Raise UsageError where options belong to another judge, or to a sampling that is not done."""
    if config.judge == "llm" and config.judge_model is None:
        raise UsageError("A model is needed that judges.", where="--judge llm", fix="--judge-model MODEL")
    for name, judges in _OPTIONS_OF.items():
        if config.judge not in judges and getattr(config, name) not in (None, []):
            option, other = f"--{option_key(name)}", f"--judge {judges[0]}"
            raise UsageError(
                f"{option} says something about {other}, and --judge {config.judge} is asked.",
                where=option,
                fix=f"leave {option} out, or {other}",
            )
    given = [f"--{option_key(name)}" for name in _SAMPLING if name in config.model_fields_set]
    if config.replies is not None and given:
        raise UsageError(
            f"{given[0]} says how replies come about, and those of {config.replies} are there already.",
            where=given[0],
            fix=f"leave {given[0]} or --replies out",
        )


def _rollouts(run: Run, critic: Artifact | None, named: str | None) -> Artifact:
    """The newest dialogues on tasks of the split that the critic learned from, also where they are more or fewer of
    them: never those of an evaluation on another split."""
    done = run.manifest().of_kind("rollouts", "done")
    if named is not None or not done:
        return run.find("rollouts", named, needed_by="rank")
    if critic is None:
        return next((artifact for artifact in reversed(done) if artifact.meta.get("split") == "train"), done[-1])
    own = run.input_of(critic, "rollouts")
    same = ("task", "tasks", "split")
    alike = [artifact for artifact in done if all(artifact.meta.get(key) == own.meta.get(key) for key in same)]
    return alike[-1] if alike else own


def _metrics(rows: Iterator[CandidateRow]) -> dict[str, Any]:
    """Counts, and how far the judge sets the candidates of a turn apart."""
    turns = candidates = distinct = unjudged = 0
    spread = 0.0
    taken: list[float] = []
    basis: Counter[str] = Counter()
    for row in rows:
        values = [candidate.advantage for candidate in row.candidates]
        turns += 1
        candidates += len(values)
        unjudged += row.unjudged
        distinct += len({candidate.text for candidate in row.candidates})
        spread += max(values) - min(values)
        taken += [] if row.taken is None else [row.taken.advantage]
        basis[row.basis] += 1
    return {
        "turns": turns,
        "candidates": candidates,
        "unjudged": unjudged,
        "distinct": distinct,
        "basis": dict(basis),
        "mean_spread": round(spread / max(turns, 1), 6),
        "mean_taken_advantage": round(sum(taken) / len(taken), 6) if taken else None,
    }
