"""From the options of an online training to what it needs: tasks, humans, credit rule, critic, model, hyperparameters.

What can be checked before a model is loaded or a server is asked is checked first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property, partial

from sweet.credit.base import CreditRule, Hyperparameters
from sweet.credit.names import rule_names
from sweet.credit.registry import credit_rule, rule_class
from sweet.errors import SweetError, UsageError
from sweet.hints import option
from sweet.humans.base import Human
from sweet.learn.trainee import Trainee
from sweet.llm.gpus import Gpu
from sweet.llm.scripted import SCRIPTED, has_model
from sweet.online.assembly import Assembly, policy_to_train
from sweet.online.config import TrainOnlineConfig
from sweet.online.devices import Devices, devices_of
from sweet.online.learner import Learner
from sweet.online.ranks import RankJob
from sweet.render.page import Renderer, RenderSettings
from sweet.render.requirements import check_rendering
from sweet.render.store import SCREENSHOTS
from sweet.render.window import window_name
from sweet.rollouts.assignments import PlannedHumans, digest_of_tasks, load_tasks, plan_humans
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.dialogue import Rules
from sweet.rollouts.prepare import Dialogues
from sweet.rollouts.sides import check_human, check_writes_pages, open_simulated_humans, rendering_of
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import given_model
from sweet.stages.base import Reporter
from sweet.stages.frame import AskedModel, Frame
from sweet.stages.meta import RolloutsMeta, TrainedMeta
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind, check_scorer_option, system_prompt
from sweet.tasks.scores import ScoringRequest, TrajectoryScorer
from sweet.training.checkpoints import adapter_meta
from sweet.training.hyperparameters import resolve
from sweet.training.loggers import check_logs
from sweet.training.model import StartingModel
from sweet.training.run_critic import RunCritic, critic_of


@dataclass(frozen=True, repr=False)
class Prepared:
    """A training that is ready to run.

    Attributes:
        playing: the options of its dialogues; the agent is the model that `config` names.
        source: the dataset.
        tasks, validation: the tasks to learn from, and those that choose the actor.
        critic: the artifact of the critic that the rule asks; None for a rule that asks none. asked: answers for it.
        devices: of the ranks that train; None where this process does.
        model: with its weights where this process trains it, otherwise with shapes only.
        settings: of rendering; None for tasks without pages.
    """

    config: TrainOnlineConfig
    playing: RolloutConfig
    kind: TaskKind
    source: str
    tasks: Sequence[Task]
    validation: Sequence[Task]
    humans: PlannedHumans
    rule: CreditRule
    critic: Artifact | None
    asked: RunCritic | None
    devices: Devices | None
    model: StartingModel
    used: Hyperparameters
    settings: RenderSettings | None

    @property
    def dialogues(self) -> Dialogues:
        """The dialogues that are played."""
        return Dialogues(
            self.playing, self.kind, self.source, list(self.tasks), self.humans, judge=None, rendering=self.settings
        )

    @property
    def models(self) -> list[AskedModel]:
        """The models that play."""
        agent = AskedModel("agent", self.model.base, self.config.agent_url)
        return [agent, *self.humans.models(self.kind, self.config.sim_url)]

    @property
    def looks(self) -> dict[str, str]:
        """How pages are rendered, as dialogues and scores record it; empty for tasks without pages."""
        settings = self.settings
        return {} if settings is None else {"window": window_name(settings), "pictures": settings.pictures}

    @property
    def others(self) -> int:
        """The number of models beside those that play on the GPUs that these get."""
        if self.gpus_of_ranks:
            return 0
        return 1 + (self.critic is not None) + self.rule.trains_reward

    @property
    def gpus_of_ranks(self) -> Sequence[Gpu]:
        """The GPUs that no server may get: those of the ranks, if there are others."""
        return self.devices.gpus if self.devices is not None and self.devices.left else ()

    @cached_property
    def tasks_digest(self) -> str:
        return digest_of_tasks(self.tasks)

    @property
    def environment(self) -> dict[str, object]:
        """What the attempt records of it."""
        return {"tasks_digest": self.tasks_digest}

    @property
    def system(self) -> str:
        """The agent's system prompt."""
        return system_prompt(self.kind, self.config.max_turns)

    @property
    def rules(self) -> Rules:
        """The rules of the dialogues. Tokens are sampled from the model's own distribution, which is recorded."""
        config = self.config
        return Rules(
            config.max_turns,
            temperature=1.0,
            top_p=1.0,
            max_tokens=config.max_tokens,
            protocol="paper",
            max_thought_tokens=config.max_thought_tokens,
            effort=config.effort,
            thoughts=config.thoughts,
            logprobs=True,
            record_logprobs=True,
        )

    @property
    def rollouts_meta(self) -> RolloutsMeta:
        meta = self.dialogues.meta(self.config.agent)
        return meta.model_copy(update={"task": self.kind.name, "samples": self.config.group})

    @property
    def actor_meta(self) -> TrainedMeta:
        config = self.config
        meta = TrainedMeta(
            base=self.model.base,
            method=config.algorithm,
            protocol="paper",
            beta=config.beta,
            turn_tokens=self.config.turn_tokens,
            **vars(self.used),
        )
        return meta.model_copy(update={"rule_option": config.rule_option, **adapter_meta(self.model)})

    def open_renderer(self, run: Run) -> AbstractContextManager[Renderer | None]:
        """Open the browsers that humans and scorer share; None for tasks without pages."""
        if self.settings is None:
            return nullcontext()
        from sweet.render.shared import open_shared_browsers

        return open_shared_browsers(run.path.absolute() / SCREENSHOTS, self.config.workers, self.settings)

    def open_scorer(
        self, run: Run, renderer: Renderer | None, reporter: Reporter
    ) -> AbstractContextManager[TrajectoryScorer]:
        """Open the scorer of the dialogues."""
        config, looks = self.config, self.looks
        request = ScoringRequest(
            run=run.path.absolute(),
            say=reporter.say,
            similarity=config.similarity,
            sandbox=config.sandbox,
            workers=config.workers,
            device=config.device,
            window=looks.get("window"),
            pictures=looks.get("pictures"),
            renderer=renderer,
        )
        return self.kind.open_scorer(request)

    async def open_humans(
        self, frame: Frame, renderer: Renderer | None, stack: AsyncExitStack
    ) -> dict[str | None, Human]:
        """Open the simulated humans, by the names that assignments have."""
        folder, settings = frame.run.path, self.settings
        return await open_simulated_humans(
            self.kind, self.playing, self.humans, frame.client, frame, stack, folder, settings, renderer
        )

    def learner(self, source: str) -> Learner:
        """Return what learns from the dialogues in this process.

        Args:
            source: id of the rollouts.
        """
        load = loading(self.config)
        assembly = Assembly(self.config, self.rule, self.used, self.kind.rewards, source, self.asked, load)
        return assembly.learner(self.model)

    def rank_job(self, run: Run, source: str, devices: Devices) -> RankJob:
        """Return what ranks need to learn from the dialogues; see `learner`."""
        # What plays is not theirs, and addresses may have keys.
        config = self.config.model_copy(update={"agent_url": [], "sim_url": [], "vllm_options": []})
        return RankJob(
            run=str(run.path.absolute()),
            config=config.model_dump(mode="json"),
            base=self.model.base,
            used=vars(self.used),
            critic=None if self.critic is None else self.critic.id,
            source=source,
            device="cuda" if self.model.on_gpu else "cpu",
            zero=asdict(devices.zero),
        )


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
    rule = online_rule(config)
    _check_deterministic(config)
    check_logs(config.log_to)
    devices = devices_of(config)
    base = config.agent if run is None else given_model(run, config.agent)
    if not has_model(base):
        what = f"The agent {config.agent} is no model, so there is nothing to train."
        raise UsageError(what, where=option("agent", config.agent), fix="--agent MODEL")
    playing = config.rollout().model_copy(update={"agent": base})
    kind, source, tasks, note = load_tasks(run, playing, reporter)
    if note is not None:
        reporter.say(note)
    check_human(kind, tasks, playing)
    check_writes_pages(kind, base, "--agent MODEL")
    if config.similarity is not None:
        check_scorer_option(kind, "similarity")
    settings = rendering_of(kind, playing, reporter)
    validation = _validation(run, config, reporter)
    if kind.visual and weights:
        check_rendering((), any_page=True)
    critic = _critic(run, config, rule)
    asked = None
    if run is not None and critic is not None:
        asked = RunCritic.of(run, critic, reporter, config.device, config.max_length, planned=not weights)
    model = policy_to_train(config, base, loading(config) if weights and devices is None else Trainee.on_meta)
    used = resolve(
        config.algorithm,
        model.trainee.parameters,
        "paper",
        lr=config.lr,
        nll=config.nll,
        epochs=config.epochs or 1,
        batch=config.batch or config.tasks_per_step * config.group,
        lora=config.lora is not None,
        dialogue_epochs=kind.dialogue_epochs,
    )
    humans = plan_humans(kind, playing)
    return Prepared(
        config,
        playing,
        kind,
        source,
        tasks,
        validation,
        humans,
        rule,
        critic,
        asked,
        devices,
        model,
        used,
        settings,
    )


def online_rule(config: TrainOnlineConfig) -> CreditRule:
    """Return the credit rule.

    Raises:
        UsageError: it does not learn online; see also `credit_rule`.
    """
    rule = credit_rule(config.algorithm, config.rule_option, "algorithm")
    if rule.online:
        return rule
    names = []
    for name in rule_names():
        try:
            names += [name] if rule_class(name).online else []
        except SweetError:
            continue  # a package that cannot be imported
    raise UsageError(
        f"The rule {rule.name} does not learn online: it learns from {rule.reads} that other stages make.",
        where=option("algorithm", rule.name),
        fix=", ".join(option("algorithm", name) for name in names),
    )


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


def _validation(run: Run | None, config: TrainOnlineConfig, reporter: Reporter) -> Sequence[Task]:
    if not config.validate_every:
        return ()
    validation = load_tasks(run, config.rollout(validation=True), reporter)[2]
    if not validation:
        raise UsageError(
            "There are no validation tasks.",
            where=option("validate_every", config.validate_every),
            fix="--holdout-validation 0.1",
        )
    return validation


def _critic(run: Run | None, config: TrainOnlineConfig, rule: CreditRule) -> Artifact | None:
    needed_by = f"train-online --algorithm {rule.name}"
    if run is not None:
        return critic_of(run, rule, config.critic, needed_by=needed_by)
    if rule.asks_critic:
        raise UsageError(f"{needed_by} needs a critic, and there is no run yet.", fix="sweet train-critic")
    return None
