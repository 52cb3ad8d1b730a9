"""`sweet train-online`, and its `--dry-run`.

    config        the options
    dialogues     the dialogues of a step
    learner       what a step teaches: the credit rule and the optimizer
    policy        the sampler, which takes new weights
    safeguards    what is watched, and what a collapse is
    loop          the steps, checkpoints, and which weights are kept

The stage makes three artifacts: the rollouts with every dialogue that was learned from, their scores, and the actor.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from sweet.errors import UsageError
from sweet.hints import option
from sweet.online.config import TrainOnlineConfig
from sweet.online.metrics import CurvePoint, OnlineMetrics, OnlineWork
from sweet.rollouts.assignments import digest_of_tasks, load_tasks
from sweet.rollouts.dialogue import Rules
from sweet.rollouts.humans import PlannedHumans, plan_humans
from sweet.runs.jsonl import JsonlWriter, read_jsonl, scan_jsonl
from sweet.runs.run import Run
from sweet.stages.artifacts import given_model
from sweet.stages.base import Reporter, StageResult, digest_of
from sweet.stages.leaks import model_plays
from sweet.stages.live import PAUSE, LiveReporter
from sweet.stages.meta import RolloutsMeta, ScoresMeta, TrainedMeta
from sweet.stages.models import gpus_held, plan_models, record_serving
from sweet.stages.plans import Plan, PlanBuilder
from sweet.stages.rates import times
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind, system_prompt
from sweet.tasks.scores import Score, ScoringRequest

CHECKPOINT = "checkpoint.pt"
DURATIONS = ("play_seconds", "train_seconds", "update_seconds", "validation_seconds")
"""The parts of the duration that are reported."""


@dataclass(frozen=True)
class _Data:
    """What is played."""

    kind: TaskKind
    source: str
    tasks: list[Task]
    validation: list[Task]
    humans: PlannedHumans


def run_train_online(run: Run, config: TrainOnlineConfig, reporter: Reporter) -> StageResult[OnlineMetrics]:
    """Train an actor in many small rounds of playing and learning."""
    from sweet.learn.best_checkpoint import best_files
    from sweet.online.policy import DEVELOPER_MODE
    from sweet.training.loggers import MetricLogs, check_logs, log_name

    check_logs(config.log_to)
    base = given_model(run, config.agent)
    data = _data(run, config, reporter)
    rollout = config.rollout()
    models = [(base, config.agent_url), *((sim, config.sim_url) for sim in data.humans.sims)]
    local = plan_models(config, models, reporter, others=1)
    local.variables = DEVELOPER_MODE
    model, learner_of = _learner(config, base, data, reporter)
    meta = RolloutsMeta(
        task=data.kind.name,
        tasks=data.source,
        split=rollout.split,
        tasks_digest=digest_of_tasks(data.tasks),
        agent=config.agent,
        sim=data.humans.title,
        samples=config.group,
        max_turns=config.max_turns,
        recipe=rollout.recipe,
    ).model_copy(update=data.humans.meta())
    request = ScoringRequest(
        run=run.path.absolute(), say=reporter.say, sandbox=config.sandbox, workers=config.workers, device=config.device
    )
    attempted = run.attempt("train-online", config, verify=config.verify, warn=reporter.warn)
    with attempted as attempt, data.kind.open_scorer(request) as scorer:
        resume = config.resume
        used = learner_of.used
        trained = TrainedMeta(base=base, method=config.algorithm, recipe="paper", beta=config.beta, **used.as_metrics())
        actor = attempt.start_artifact("actor", suffix="", meta=trained.as_json(), resume=resume)
        rollouts = attempt.start_artifact("rollouts", meta=meta.as_json(), resume=resume)
        scoring = to_jsonable_python({**scorer.meta, "scorer": scorer.name}, fallback=str)
        scores = attempt.start_artifact(
            "scores", meta=ScoresMeta(scoring=scoring, rollouts=rollouts.id).as_json(), resume=resume
        )
        live = LiveReporter(reporter, attempt, PAUSE)
        record_serving(local, attempt)
        digest = digest_of([config.digest(), base, digest_of_tasks(data.tasks), vars(used)])
        name = log_name(run, actor.id, config.model_dump(mode="json"))
        with (
            JsonlWriter(rollouts.path) as dialogues,
            JsonlWriter(scores.path) as scored,
            JsonlWriter(attempt.metrics_path) as rows,
            MetricLogs(config.log_to, name, live) as logs,
            live.progress("steps", config.most_steps) as bar,
            live.progress("dialogues", None) as played,
        ):

            def on_row(row: dict[str, Any]) -> None:
                rows.write(row)
                logs.write(row)

            files = _Files(actor.path, dialogues, scored, rows, digest)
            loop, ended = asyncio.run(
                _train(config, base, data, run, local, learner_of, scorer, files, live, (bar, played), on_row)
            )
            counted = dialogues.rows, scored.rows
        kept, weights = loop.kept()
        model.trainee.load_weights(weights)
        model.trainee.write(model.encoder, actor.path)
        for path in (actor.path / CHECKPOINT, *best_files(actor.path / CHECKPOINT)):
            path.unlink(missing_ok=True)
        sums, steps = loop.done, loop.done.steps
        if ended == "collapse":
            reporter.warn(f"Ended by a collapse: {sums.collapse}. The actor has the weights of step {kept}.")
        validated = {row["step"]: row["validation"] for row in steps if "validation" in row}
        counts = ("episodes", "failed", "completion_tokens", "prompt_tokens", "human_prompt_tokens")
        metrics = OnlineMetrics(
            steps=len(steps),
            updates=learner_of.updates,
            ended=ended,
            collapse=sums.collapse,
            kept_step=kept,
            **{count_: sums.count(count_) for count_ in (*counts, "human_completion_tokens", "validation_tokens")},
            reward=loop.recent_reward(),
            validation=validated.get(kept),
            kl_start=steps[-1].get("kl_start") if steps else None,
            lr=used.lr,
            parameters=model.trainee.parameters,
            trained_parameters=model.trainee.trained,
            **{key: round(sums.sums.get(key, 0.0), 3) for key in DURATIONS},
            seconds=round(loop.seconds, 3),
            curve=[CurvePoint.read(row) for row in steps],
        )
        attempt.metrics.update(metrics.as_json())
        made_rollouts = attempt.finish_artifact(rollouts, rows=counted[0])
        made_scores = attempt.finish_artifact(scores, rows=counted[1], made_from=[made_rollouts])
        made_actor = attempt.finish_artifact(actor, made_from=[made_scores, made_rollouts])
    return StageResult("train-online", run.path, metrics, [made_actor, made_scores, made_rollouts])


@dataclass(frozen=True)
class _Files:
    """What a training writes: the actor's folder, dialogues, scores, and the log of failed dialogues."""

    actor: Path
    dialogues: JsonlWriter
    scores: JsonlWriter
    log: JsonlWriter
    digest: str


async def _train(
    config: TrainOnlineConfig,
    base: str,
    data: _Data,
    run: Run,
    local: Any,
    learner: Any,
    scorer: Any,
    files: _Files,
    live: LiveReporter,
    bars: tuple[Any, Any],
    on_row: Any,
) -> tuple[Any, str]:
    """Open the sampler and the humans and train; return the loop, and what ended it."""
    from dataclasses import replace

    from sweet.humans.connect import open_humans
    from sweet.online.dialogues import StepPlayer, rows_after
    from sweet.online.loop import OnlineLoop
    from sweet.online.policy import open_policy
    from sweet.render.store import SCREENSHOTS
    from sweet.rollouts.sides import open_players

    rollout = config.rollout()
    async with AsyncExitStack() as stack:
        trainee = learner.model.trainee
        policy = await stack.enter_async_context(
            open_policy(config, base, trainee, local, run.path / ".policy" / files.actor.name)
        )
        players = await open_players(rollout, data.humans, local, stack)
        opening = open_humans(
            data.kind, players, run.path / SCREENSHOTS, "paper", None, live.say, None, config.human_tries
        )
        opened = await stack.enter_async_context(opening)
        pairs = zip(data.humans.humans, opened, strict=True)
        named = {planned.name if data.humans.named else None: human for planned, human in pairs}
        rules = Rules(
            config.max_turns,
            1.0,
            1.0,
            config.max_tokens,
            "paper",
            max_thought_tokens=config.max_thought_tokens,
            effort=config.effort,
            thoughts=config.thoughts,
            logprobs=True,
            record_logprobs=True,
        )
        bar, played = bars
        player = StepPlayer(
            kind=data.kind,
            rules=rules,
            agent=policy,
            human=named,
            system=system_prompt(data.kind, config.max_turns),
            limit=config.concurrency,
            seconds=config.deadline,
            allowed=config.fail_on_error,
            writer=files.dialogues,
            log=files.log,
            live=live,
            bar=played,
        )
        loop = OnlineLoop(
            config=config,
            kind=data.kind,
            tasks=data.tasks,
            validation=data.validation,
            humans=data.humans,
            model_plays=any(model_plays(human.name) for human in data.humans.humans),
            player=player,
            validator=replace(player, writer=None),
            scorer=scorer,
            scored={},
            scores=files.scores,
            learner=learner,
            policy=policy,
            checkpoint=files.actor / CHECKPOINT,
            digest=files.digest,
            live=live,
            bar=bar,
            on_row=on_row,
        )
        loop.load()
        player.recorded = rows_after(scan_jsonl(files.dialogues.path), loop.done.step)
        loop.scored = {row.id: row for row in read_jsonl(files.scores.path, Score) if row.id in player.recorded}
        return loop, await loop.run()


def _data(run: Run | None, config: TrainOnlineConfig, reporter: Reporter) -> _Data:
    rollout = config.rollout()
    kind, source, tasks, note = load_tasks(run, rollout, reporter)
    if note is not None:
        reporter.say(note)
    if kind.visual:
        what = "Online training plays dialogues without pages: these tasks show pages."
        raise UsageError(what, where=source, fix="the stages of sweet train")
    if config.sim == "scripted":
        kind.check_scripted_human(tasks)
    validation: list[Task] = []
    if config.validate_every:
        validation = load_tasks(run, config.rollout(validation=True), reporter)[2]
        if not validation:
            raise UsageError(
                "There are no validation tasks.",
                where=option("validate_every", config.validate_every),
                fix=option("holdout_validation", 0.1),
            )
    return _Data(kind, source, tasks, validation, plan_humans(kind, rollout))


def _learner(config: TrainOnlineConfig, base: str, data: _Data, reporter: Reporter) -> tuple[Any, Any]:
    """Return the model, with weights, and the learner."""
    from sweet.credit.registry import credit_rule
    from sweet.learn.batches import GPU_TOKENS
    from sweet.online.learner import Learner, LearnerSettings, check_online
    from sweet.training.prepare import CPU_TOKENS

    rule = credit_rule(config.algorithm, config.rule_option, "algorithm")
    check_online(rule)
    model = _model(config, base, weights=True)
    used = _used(config, model, data.kind)
    budget = config.micro_batch_tokens or (GPU_TOKENS if model.on_gpu else CPU_TOKENS)
    settings = LearnerSettings(config.epochs, config.batch, config.seed, budget, config.packing == "tree")
    objective = rule.objective(config.beta, used.nll, "paper")
    reporter.say(
        f"{model.trainee.parameters:,} parameters, {config.algorithm}, {config.tasks_per_step} tasks of "
        f"{config.group} dialogues a step, lr {used.lr:g}."
    )
    return model, Learner(model, rule, objective, used, settings, data.kind.rewards, "the rollouts of this training")


def _used(config: TrainOnlineConfig, model: Any, kind: TaskKind) -> Any:
    """Return the hyperparameters; the batch is that of a step."""
    from sweet.training.hyperparameters import resolve

    return resolve(
        config.algorithm,
        model.trainee.parameters,
        "paper",
        lr=config.lr,
        nll=config.nll,
        epochs=config.epochs,
        batch=config.batch or config.tasks_per_step * config.group,
        lora=config.lora is not None,
        dialogue_epochs=kind.dialogue_epochs,
    )


def _model(config: TrainOnlineConfig, base: str, *, weights: bool) -> Any:
    """Return the model to train; its shapes alone for a plan."""
    from sweet.hf import resolve_device
    from sweet.learn.tokens import ChatEncoder
    from sweet.learn.trainee import Trainee
    from sweet.llm.pretrained import context_length, load_tokenizer
    from sweet.training.model import StartingModel, recompute_layers, start_of

    tokenizer = load_tokenizer(base)
    on_gpu = resolve_device(config.device).type == "cuda"
    start = start_of(
        base, config.lora_options, recompute=recompute_layers(config.gradient_checkpointing, on_gpu=on_gpu)
    )
    if weights:
        trainee = Trainee.load(start, config.device, tokenizer=tokenizer)
    else:
        trainee = Trainee.on_meta(start, tokenizer=tokenizer)
    encoder = ChatEncoder(tokenizer, config.turn_tokens or "both", config.effort)
    length = config.max_length or context_length(trainee.model)
    return StartingModel(base, trainee, encoder, on_gpu=on_gpu, sees_pages=False, max_length=length)


def plan_train_online(run: Run | None, config: TrainOnlineConfig, reporter: Reporter) -> Plan[OnlineWork]:
    """Return the work that `run_train_online` would do at most."""
    from sweet.credit.registry import credit_rule
    from sweet.online.learner import check_online

    check_online(credit_rule(config.algorithm, config.rule_option, "algorithm"))
    base = config.agent if run is None else given_model(run, config.agent)
    data = _data(run, config, reporter)
    model = _model(config, base, weights=False)
    gpus = gpus_held(config.device, [(), config.agent_url, config.sim_url])
    builder = PlanBuilder(
        "train-online",
        run,
        config.rates,
        kind=data.kind.name,
        settings={**config.model_dump(mode="json"), "base": base},
        gpus=gpus,
        decides=("agent", "algorithm", "sim", "lora"),
        compared=("tasks_per_step", "group", "max_turns", "max_tokens", "staleness", "concurrency", "device"),
    )
    each = config.tasks_per_step * config.group
    steps = config.most_steps
    a_dialogue = builder.rate(
        "tokens_written",
        "a dialogue",
        lambda earlier: times(earlier.metric("completion_tokens"), 1 / (earlier.metric("episodes") or 1)),
    )
    tokens = times(None if steps is None else steps * each, a_dialogue)
    budget = config.generated_tokens
    written = min(tokens, budget) if tokens is not None and budget is not None else budget or tokens
    seconds = builder.seconds_per("step", lambda earlier: earlier.metric("steps"))
    work = OnlineWork(
        base=base,
        algorithm=config.algorithm,
        parameters=model.trainee.parameters,
        trainable=model.trainee.trained,
        tasks=len(data.tasks),
        tasks_per_step=config.tasks_per_step,
        dialogues_per_step=each,
        steps=steps,
        dialogues=None if steps is None else steps * each,
        tokens_written=None if written is None else round(written),
        lr=_used(config, model, data.kind).lr,
        staleness=config.staleness,
    )
    return builder.build(work, seconds=times(steps, seconds))
