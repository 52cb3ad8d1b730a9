"""From the options of an online training to what it needs: tasks, humans, credit rule, critic, model, hyperparameters.

What can be checked before a model is loaded or a server is asked is checked first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sweet.credit.base import CreditRule, Hyperparameters
from sweet.credit.registry import credit_rule
from sweet.errors import UsageError
from sweet.gpus import Gpu
from sweet.hints import option
from sweet.learn.engine import Engine
from sweet.learn.remote import RemoteEngine
from sweet.learn.trainee import Trainee
from sweet.llm.scripted import SCRIPTED, has_model
from sweet.online.config import TrainOnlineConfig
from sweet.online.learner import Learner, policy_to_train
from sweet.online.ranks import Devices, RankJob, Ranks, devices_of
from sweet.render.page import Renderer
from sweet.render.requirements import check_rendering
from sweet.render.store import SCREENSHOTS
from sweet.render.window import window_name
from sweet.rollouts.assignments import load_tasks
from sweet.rollouts.dialogue import Rules
from sweet.rollouts.prepare import Dialogues, load_dialogues
from sweet.rollouts.sides import check_harness, check_human, check_writes_pages
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import given_model
from sweet.stages.base import Reporter
from sweet.stages.critics import CriticSettings
from sweet.stages.meta import RolloutsMeta, TrainedMeta
from sweet.tasks.base import Task
from sweet.tasks.kind import check_scorer_option
from sweet.tasks.scores import ScoringRequest, TrajectoryScorer
from sweet.training.asked_models import RunCritic
from sweet.training.checkpoints import adapter_meta
from sweet.training.hyperparameters import resolve
from sweet.training.loggers import check_logs
from sweet.training.model import StartingModel, warn_if_too_large
from sweet.training.movement import warn_if_unmoved
from sweet.training.remote import by_service, for_service


@dataclass(frozen=True, repr=False)
class Prepared:
    """A training that is ready to run.

    Attributes:
        dialogues: to learn from; their agent is the model that `config` names.
        validation: the tasks that choose the actor.
        critic: that the rule asks; None for a rule that asks none.
        devices: of the ranks that train; None where this process does.
        model: with its weights where this process trains it, otherwise with shapes only.
    """

    config: TrainOnlineConfig
    dialogues: Dialogues
    validation: Sequence[Task]
    rule: CreditRule
    critic: RunCritic | None
    devices: Devices | None
    model: StartingModel
    used: Hyperparameters

    @property
    def inputs(self) -> list[Artifact]:
        """The artifacts that are read."""
        return [] if self.critic is None else [self.critic.artifact]

    @property
    def computed(self) -> int:
        """The number of models beside those that play on the GPUs that these get."""
        return 0 if self.gpus_of_ranks else 1 + (self.critic is not None) + self.rule.trains_reward

    @property
    def gpus_of_ranks(self) -> Sequence[Gpu]:
        """The GPUs that no server may get: those of the ranks, if there are others."""
        return self.devices.gpus if self.devices is not None and self.devices.left else ()

    @property
    def rules(self) -> Rules:
        """The rules of the dialogues. Tokens are sampled from the model's own distribution, which is recorded."""
        return replace(self.dialogues.rules(), temperature=1.0, top_p=1.0, logprobs=True, record_logprobs=True)

    @property
    def rollouts_meta(self) -> RolloutsMeta:
        meta = self.dialogues.meta(self.config.agent)
        return meta.model_copy(update={"task": self.dialogues.kind.name, "samples": self.config.group})

    @property
    def actor_meta(self) -> TrainedMeta:
        config = self.config
        meta = TrainedMeta(
            base=self.model.base,
            algorithm=config.algorithm,
            protocol="paper",
            beta=config.beta,
            turn_tokens=config.turn_tokens,
            agent_system=self.dialogues.own_prompt,
            **vars(self.used),
        )
        return meta.model_copy(update={"rule_option": config.rule_option, **adapter_meta(self.model)})

    def open_renderer(self, run: Run) -> AbstractContextManager[Renderer | None]:
        """Open the browsers that humans and scorer share; None for tasks without pages."""
        if self.dialogues.rendering is None:
            return nullcontext()
        from sweet.render.browsers import open_shared_browsers

        return open_shared_browsers(run.path.absolute() / SCREENSHOTS, self.config.workers, self.dialogues.rendering)

    def open_scorer(
        self, run: Run, renderer: Renderer | None, reporter: Reporter
    ) -> AbstractContextManager[TrajectoryScorer]:
        """Open the scorer of the dialogues."""
        config, rendering = self.config, self.dialogues.rendering
        request = ScoringRequest(
            run=run.path.absolute(),
            say=reporter.say,
            similarity=config.similarity,
            sandbox=config.sandbox,
            workers=config.workers,
            device=config.device,
            window=None if rendering is None else window_name(rendering),
            pictures=None if rendering is None else rendering.pictures,
            renderer=renderer,
        )
        return self.dialogues.kind.open_scorer(request)

    def open_learner(self, run: Run, source: str, folder: Path, log: Path, reporter: Reporter) -> Learner | Ranks:
        """Return what learns from the dialogues: in this process, or in ranks until their context is closed.

        Args:
            source: id of the rollouts.
            folder, log: of ranks.
        """
        config = self.config
        if self.devices is None:
            start = self.model.trainee.start
            engine = partial(RemoteEngine, start=start) if by_service(config) else Engine
            return Learner(config, self.used, source, self.critic, loading(config), self.model, engine)
        # What plays is not that of ranks, and addresses may have keys.
        config = config.model_copy(update={"agent_url": [], "sim_url": [], "vllm_options": []})
        job = RankJob(
            run=run.path.absolute(),
            config=config,
            base=self.model.base,
            used=self.used,
            critic=None if self.critic is None else self.critic.artifact.id,
            source=source,
            device="cuda" if self.model.on_gpu else "cpu",
            zero=self.devices.zero,
        )
        return Ranks(job, self.devices, folder, log, reporter)


def loading(config: TrainOnlineConfig) -> Callable[..., Trainee]:
    """Return what loads models with their weights into this process (`policy_to_train`)."""
    return partial(Trainee.load, device=config.device)


def prepare(run: Run | None, config: TrainOnlineConfig, reporter: Reporter, *, weights: bool = True) -> Prepared:
    """Read the tasks and the model, and check the options.

    Args:
        run: None for one that does not exist yet, which can only be planned.
        weights: False for a training that is only planned: shapes are loaded, not weights.

    Raises:
        UsageError: the options do not go together.
    """
    rule, adapted = credit_rule(config.algorithm, config.rule_option), for_service(config)
    if by_service(config) and (rule.trains_reward or rule.average_rate is not None):
        raise UsageError(
            f"The rule {rule.name} keeps a second model, which a service does not train.",
            where=f"{option('algorithm', rule.name)} {option('local_engine', config.local_engine)}",
            fix="--local-engine embedded, or another rule",
        )
    if not rule.online:
        raise UsageError(
            f"The rule {rule.name} does not learn online: it learns from {rule.reads} that other stages make.",
            where=option("algorithm", rule.name),
            fix=f"--algorithm grpo, or sweet train-actor --algorithm {rule.name}",
        )
    _check_deterministic(config)
    check_logs(config.log_to)
    devices = devices_of(config)
    base = config.agent if run is None else given_model(run, config.agent)
    if not has_model(base):
        what = f"The agent {config.agent} is no model, so there is nothing to train."
        raise UsageError(what, where=option("agent", config.agent), fix="--agent MODEL")
    dialogues = load_dialogues(run, config.rollout().model_copy(update={"agent": base}), reporter)
    kind = dialogues.kind
    check_human(kind, dialogues.tasks, dialogues.config)
    check_harness(kind, dialogues.tasks, dialogues.config)
    if config.harness is not None and getattr(rule, "branches", 0) > 0:
        what = f"{rule.name} begins dialogues in the middle of others, and a program begins at its task."
        raise UsageError(what, where=option("harness"), fix="--algorithm grpo")
    check_writes_pages(kind, base, "--agent MODEL")
    if config.similarity is not None:
        check_scorer_option(kind, "similarity")
    validation: Sequence[Task] = ()
    if config.validate_every:
        validation = load_tasks(run, config.rollout(validation=True), reporter)[2]
        if not validation:
            where = option("validate_every", config.validate_every)
            raise UsageError("There are no validation tasks.", where=where, fix="--holdout-validation 0.1")
    if kind.visual and weights:
        check_rendering((), any_page=True)
    settings, needed_by = CriticSettings(config.device, config.max_length), f"train-online --algorithm {rule.name}"
    critic = RunCritic.find(run, rule, config.critic, settings, reporter, needed_by=needed_by)
    loads_here = weights and devices is None and not by_service(config)
    model = policy_to_train(adapted, base, loading(config) if loads_here else Trainee.on_meta)
    batch_options = {"epochs": config.epochs or 1, "batch": config.batch or config.tasks_per_step * config.group}
    used = resolve(adapted.model_copy(update=batch_options), config.algorithm, model.trainee.parameters, "paper")
    updates = (config.most_steps or 0) * used.epochs * -(-config.tasks_per_step * config.group // used.batch)
    warn_if_unmoved(model.trainee, rule.name, [used.lr] * updates, reporter.warn)
    if devices is None and not by_service(config):
        warn_if_too_large(model, 0, reporter.warn)
    return Prepared(config, dialogues, validation, rule, critic, devices, model, used)


def _check_deterministic(config: TrainOnlineConfig) -> None:
    """Raise UsageError if the weights would depend on how fast something is."""
    if not config.deterministic:
        return
    if config.staleness:
        raise UsageError(
            "Which weights sample a dialogue that is under way while a step is learned depends on the time.",
            where=f"--deterministic {option('staleness', config.staleness)}",
            fix="--staleness 0",
        )
    sims = [sim for sim in config.rollout().sims if sim != SCRIPTED]
    if sims:
        raise UsageError(
            f"{sims[0]} writes several replies at a time, so they differ in the last bits.",
            where=f"--deterministic {option('sim', sims[0])}",
            fix=option("sim", SCRIPTED),
        )
