"""From the options of a training to a training that is ready: inputs, model, hyperparameters, examples, objective.

The critic learns from trajectory preferences with the training-time information, equation (2) of the paper; one with a
regression head may learn the outcomes of dialogues instead. The actor learns what a credit rule (`sweet.credit`) makes
of the run's artifacts: step-level pairs without that information (`sweet`), or a baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from sweet.credit.base import CreditRule
from sweet.credit.hyperparameters import Hyperparameters
from sweet.credit.registry import credit_rule
from sweet.errors import UsageError
from sweet.hints import option
from sweet.learn.components import Example, Objective, Target
from sweet.learn.distributed import Layout
from sweet.learn.engine import CLIP, Engine
from sweet.learn.logprobs import Scorer
from sweet.learn.loop import LoopSettings
from sweet.learn.sequences import VisionModel
from sweet.learn.tokens import ChatEncoder
from sweet.learn.trainee import Trainee
from sweet.learn.upstream import UpstreamEncoder
from sweet.learn.vision_processor import vision_processor
from sweet.learn.zero import ZeroSettings
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.preferences.label import preferences, usable_dialogues
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_of, given_model
from sweet.stages.base import Reporter
from sweet.stages.meta import RolloutsMeta, TrainedMeta
from sweet.stages.screenshots import CriticScreenshots, page_encoder, shows_pages
from sweet.stages.unseen_tasks import check_not_test
from sweet.tasks.registry import task_kind
from sweet.training.config import (
    TrainActorConfig,
    TrainConfig,
    TrainCriticConfig,
    actor_turn_tokens,
    adjacent,
    check_critic_options,
    critic_turn_tokens,
    order_of,
)
from sweet.training.examples import ExampleBuilder, TrainingData, draw, hold_out
from sweet.training.hyperparameters import resolve
from sweet.training.layout import layout_of, unused_nodes
from sweet.training.loggers import check_logs
from sweet.training.model import StartingModel, starting_model
from sweet.training.reward_model import RewardModel
from sweet.training.run_critic import RunCritic, critic_of
from sweet.training.sources import Sources
from sweet.training.starting_policy import StartingPolicy
from sweet.training.trainer import Training
from sweet.units import count


def prepare_critic(
    run: Run, config: TrainCriticConfig, reporter: Reporter, *, weights: bool = True
) -> tuple[Training, TrainedMeta]:
    """Prepare the training of a critic.

    Args:
        weights: False for a training that is only planned: shapes are loaded, not weights, and nothing is written.

    Returns:
        The training, and the `meta` of the critic as far as it is the critic's own.
    """
    check_critic_options(config)
    meta, beta = TrainedMeta(variant=config.variant, protocol=config.protocol), config.beta
    if config.variant == "regression":
        target: Target = config.target
        if config.protocol == "upstream" and target == "preference":
            target, beta = "dialogue", 1.0
        meta = meta.model_copy(update={"target": target})
        objective = partial(Objective, target=target)
    else:
        normalize = config.normalize or ("trajectory" if config.protocol == "upstream" else "turn")
        meta = meta.model_copy(update={"normalize": normalize, "turn_tokens": critic_turn_tokens(config)})
        objective = partial(Objective, normalize=normalize)
    if config.target == "preference":
        basis, examples, heldout = _preference_examples(run, config, reporter, weights)
        minimised = objective(beta, basis.hyperparameters.nll)
    else:
        basis, examples, heldout = _outcome_examples(run, config, reporter, weights)
        minimised = objective(None, 0.0)
    if config.keep == "best" and not heldout:
        what = "The best epoch is chosen on held-out preferences, and there are none."
        raise UsageError(what, where="--keep best", fix="a larger --holdout")
    keep_best = config.keep != "last" and bool(heldout)
    training = basis.training(config, examples, minimised, heldout, keep_best=keep_best)
    return replace(training, beta=beta), meta


def prepare_actor(run: Run, config: TrainActorConfig, reporter: Reporter, *, weights: bool = True) -> Training:
    """Prepare the training of an actor by a credit rule; see `prepare_critic` for `weights`."""
    rule = credit_rule(config.method, config.rule_option)
    needed_by = f"train-actor --method {config.method}"
    sources = Sources.find(run, rule.reads, config.from_, allow_test=config.allow_test, needed_by=needed_by)
    critic = critic_of(run, rule, config.critic, needed_by=needed_by)
    inputs = sources.inputs if critic is None else [*sources.inputs, critic]
    basis = _Basis.load(run, config, config.method, inputs, reporter, weights)
    batch = sources.batch(rule.reads, task_kind(run.manifest().task).rewards)
    asked = None
    if critic is not None:
        asked = RunCritic.of(run, critic, reporter, config.device, config.max_length, planned=not weights)
    models = basis.models(config, rule, asked, planned=not weights)
    credits = draw(rule.credit(batch, models), config.limit, config.seed)
    reward = models.reward_model() if rule.trains_reward else None
    if reward is not None and reward.figures is not None:
        reporter.say(f"Reward model: {reward.figures}.")
    examples = basis.builder.credits(batch, credits, models)
    training = basis.training(config, examples, rule.objective(config.beta, basis.hyperparameters.nll, config.protocol))
    training = replace(training, trains_reward=rule.trains_reward, reward=None if reward is None else reward.figures)
    if not rule.grouped:
        return training
    groups = len(batch.groups())
    equal = len(batch.equal_groups())
    if equal:
        reporter.say(f"Equal rewards: {equal:,} of {count(groups, 'group')} of dialogues.")
    return replace(training, groups=groups, equal_groups=equal)


def _preference_examples(
    run: Run, config: TrainCriticConfig, reporter: Reporter, weights: bool
) -> tuple[_Basis, list[Example], list[Example]]:
    """Build the examples of a critic that learns preferences, and the held-out ones."""
    sources = Sources.find(run, "preferences", config.from_, allow_test=config.allow_test, needed_by="train-critic")
    learner = "regression" if config.variant == "regression" else "critic"
    basis = _Basis.load(run, config, learner, sources.inputs, reporter, weights)
    train, heldout = hold_out(sources.preferences(), config.holdout, config.seed)
    dialogues = sources.dialogues()
    build = partial(basis.builder.dialogues, dialogues, reveal=config.variant != "no-info")
    return basis, build(draw(train, config.limit, config.seed)), build(heldout)


def _outcome_examples(
    run: Run, config: TrainCriticConfig, reporter: Reporter, weights: bool
) -> tuple[_Basis, list[Example], list[Example]]:
    """Build the examples of a regression head that learns outcomes: every scored dialogue.

    The held-out tasks are those that a training on the preferences of the same scores holds out, and the critic is
    measured on its preferences there.
    """
    rule = task_kind(run.manifest().task).rewards
    if config.target == "binary" and rule.solved is None:
        what = f"No task of the kind {run.manifest().task} is ever solved: its rewards are degrees."
        raise UsageError(what, where="--target binary", fix="--target real, or preference")
    sources = _scores_to_learn(run, config)
    basis = _Basis.load(run, config, "regression", sources.inputs, reporter, weights)
    dialogues, rewards = sources.dialogues(), sources.rewards()
    usable = usable_dialogues(dialogues.values(), rewards)
    _, heldout = hold_out(list(preferences(usable, rewards, rule)), config.holdout, config.seed)
    heldout_tasks = {preference.task_id for preference in heldout}
    train = sorted(trajectory.id for trajectory in usable if trajectory.task_id not in heldout_tasks)
    goals = {name: rule.worth(reward) for name, reward in rewards.items()} if config.target == "binary" else rewards
    build = partial(basis.builder.dialogues, dialogues, reveal=True, goals=goals)
    return basis, build(draw(train, config.limit, config.seed)), build(heldout)


def _scores_to_learn(run: Run, config: TrainCriticConfig) -> Sources:
    """Return the scores behind the newest preferences, so that all targets learn from the same dialogues; where there
    are no preferences, the newest scores."""
    labelled = run.manifest().of_kind("preferences", "done")
    if not config.from_ and labelled:
        return Sources(run, [run.input_of(labelled[-1], "scores")])
    return Sources.find(run, "scores", config.from_, allow_test=config.allow_test, needed_by="train-critic")


@dataclass(frozen=True)
class _Basis:
    """What every training has before it has examples.

    Attributes:
        inputs: the artifacts that are read.
        layout: of the ranks; None for one device.
    """

    inputs: list[Artifact]
    layout: Layout | None
    model: StartingModel
    hyperparameters: Hyperparameters
    builder: ExampleBuilder

    @classmethod
    def load(
        cls,
        run: Run,
        config: TrainConfig,
        learner: str,
        inputs: Sequence[Artifact],
        reporter: Reporter,
        weights: bool,
    ) -> _Basis:
        trained = "train-critic" if isinstance(config, TrainCriticConfig) else "train-actor"
        check_not_test(run, inputs, allow=config.allow_test, needed_by=trained)
        layout = layout_of(config)
        if warning := unused_nodes(config):
            reporter.warn(warning)
        check_logs(config.log_to)
        rollouts = next(artifact for artifact in inputs if artifact.kind == "rollouts")
        base = given_model(run, config.model) if config.model else agent_of(run, rollouts, "model")
        learned = ", ".join(artifact.id for artifact in inputs if artifact.kind == inputs[0].kind)
        reporter.say(f"Training on {learned} from {base}.")
        model = _load_model(run, config, base, learner, layout, rollouts, reporter, weights)
        hyperparameters = resolve(
            learner,
            model.trainee.parameters,
            config.protocol,
            lr=config.lr,
            nll=config.nll,
            epochs=config.epochs,
            batch=config.batch,
            lora=config.lora is not None,
            dialogue_epochs=task_kind(run.manifest().task).dialogue_epochs,
        )
        builder = ExampleBuilder(
            model.encoder,
            protocol=config.protocol,
            max_length=model.max_length,
            source=inputs[0].id,
        )
        return cls(list(inputs), layout, model, hyperparameters, builder)

    def models(
        self, config: TrainConfig, rule: CreditRule, critic: RunCritic | None, *, planned: bool
    ) -> StartingPolicy:
        """Return the models that a credit rule may ask.

        Args:
            critic: of the run; None for a rule that asks none.
            planned: nothing is computed.

        Raises:
            UsageError: the rule trains a reward model, and the policy is trained by several processes.
        """
        if rule.trains_reward and self.layout is not None:
            raise UsageError(
                f"The rule {rule.name} trains a second model, which only one process on one device can.",
                where=f"{option('method', rule.name)} --engine deepspeed",
                fix="--engine torch",
            )

        def load() -> Scorer:
            trainee = self.model.trainee
            if self.layout is None:
                return Scorer(trainee.model)
            # The ranks hold the weights of the training; this process reads them once more.
            return Scorer(load_model(self.model.base, config.device, tokenizer=self.model.encoder.tokenizer))

        def load_reward() -> RewardModel:
            trainee = Trainee.load(self.model.trainee.start, config.device, tokenizer=self.model.encoder.tokenizer)
            trainee.model.eval()  # with dropout, its log-ratios would not be 0 at the start
            return RewardModel(
                Engine(trainee.model, CLIP),
                self.builder.encoder,
                self.hyperparameters.lr,
                token_budget=self.model.token_budget(config.micro_batch_tokens),
                seed=config.seed,
                share=config.packing != "plain",
            )

        budget = 2 * self.model.token_budget(config.micro_batch_tokens)
        return StartingPolicy(
            self.builder.encoder,
            None if planned else load,
            budget,
            critic,
            load_reward if rule.trains_reward else None,
        )

    def training(
        self,
        config: TrainConfig,
        examples: list[Example],
        objective: Objective,
        heldout: Sequence[Example] = (),
        *,
        keep_best: bool = False,
    ) -> Training:
        used = self.hyperparameters
        order = order_of(config, self.inputs[0].kind, sees_pages=self.model.sees_pages)
        settings = LoopSettings(
            lr=used.lr,
            epochs=used.epochs,
            batch=used.batch,
            seed=config.seed,
            token_budget=self.model.token_budget(config.micro_batch_tokens),
            save_every=config.save_every,
            together=adjacent(order, used.batch),
            share=config.packing != "plain",
            replays_segments=config.packing == "segments",
            keep_best=keep_best,
        )
        return Training(
            inputs=self.inputs,
            model=self.model,
            data=TrainingData(self.builder.pool, examples, list(heldout), self.builder.too_long, self.builder.source),
            hyperparameters=used,
            objective=objective,
            settings=settings,
            shuffle=order,
            beta=config.beta,
            layout=self.layout,
            zero=ZeroSettings(config.zero_stage, config.offload),
        )


def _load_model(
    run: Run,
    config: TrainConfig,
    base: str,
    learner: str,
    layout: Layout | None,
    rollouts: Artifact,
    reporter: Reporter,
    weights: bool,
) -> StartingModel:
    """Load the model, or its shapes where this process does not train it, and what encodes dialogues for it."""
    tokenizer = load_tokenizer(base)
    upstream_critic = config.protocol == "upstream" and learner in ("critic", "regression")
    effort = RolloutsMeta.of(rollouts).effort
    counted = critic_turn_tokens(config) if isinstance(config, TrainCriticConfig) else actor_turn_tokens(config)
    encoder = UpstreamEncoder(tokenizer) if upstream_critic else ChatEncoder(tokenizer, counted, effort)
    sees_pages = learner == "regression" and shows_pages(run, base)
    if sees_pages:
        pixels = config.image_pixels if isinstance(config, TrainCriticConfig) else None
        shots = CriticScreenshots(run, rollouts, reporter, renders=weights)
        encoder = page_encoder(run, rollouts, tokenizer, vision_processor(VisionModel(base, pixels)), shots)
        reporter.say(
            "The critic sees the screenshots of the reference and of each turn. Such dialogues are computed one by "
            "one or in padded batches: prefix trees hold no pictures."
        )
    elif learner == "regression" and task_kind(run.manifest().task).visual:
        reporter.say(f"The critic reads pages as HTML: {base} does not see pictures.")
    head = learner == "regression"
    head_seed = config.seed if head and upstream_critic else None
    return starting_model(
        config,
        base,
        encoder,
        partial(Trainee.load, device=config.device) if weights and layout is None else Trainee.on_meta,
        one_process=config.engine == "torch",
        head=head,
        head_seed=head_seed,
        sees_pages=sees_pages,
    )
