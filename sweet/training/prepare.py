"""From the options of a training to a training that is ready: inputs, model, hyperparameters, examples, objective.

The critic learns from trajectory preferences with the training-time information, equation (2) of the paper; one with a
regression head may learn the outcomes of dialogues instead. The actor learns what a credit rule (`sweet.credit`) makes
of the run's artifacts: step-level pairs without that information (`sweet`), or a baseline.
"""

from __future__ import annotations

from functools import partial

from sweet.credit.base import missing_rewards
from sweet.credit.registry import credit_rule
from sweet.errors import UsageError
from sweet.hints import option
from sweet.learn.components import Example, Objective, Target
from sweet.preferences.label import preferences, usable_dialogues
from sweet.runs.run import Run
from sweet.stages.base import Reporter
from sweet.stages.critics import CriticSettings
from sweet.stages.meta import TrainedMeta
from sweet.tasks.registry import task_kind
from sweet.training.asked_models import RunCritic
from sweet.training.basis import Basis, Training
from sweet.training.config import TrainActorConfig, TrainCriticConfig, check_critic_options
from sweet.training.examples import draw, hold_out
from sweet.training.openrlhf import check_openrlhf
from sweet.training.sources import Sources, prompt_of_actor
from sweet.training.starting_policy import starting_policy
from sweet.units import count, percent


def prepare_critic(
    run: Run, config: TrainCriticConfig, reporter: Reporter, *, weights: bool = True
) -> tuple[Training, TrainedMeta]:
    """Prepare the training of a critic.

    Args:
        weights: False for a training that is only planned: shapes are loaded, not weights, and nothing is written.

    Returns:
        The training, and the `meta` of the critic as far as it is the critic's own.
    """
    check_openrlhf(config)
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
        meta = meta.model_copy(update={"normalize": normalize, "turn_tokens": config.supervised})
        objective = partial(Objective, normalize=normalize)
    if config.target == "preference":
        basis, examples, heldout = _preference_examples(run, config, reporter, weights)
        loss_terms = objective(beta, basis.hyperparameters.nll)
    else:
        basis, examples, heldout = _outcome_examples(run, config, reporter, weights)
        loss_terms = objective(None, 0.0)
    if config.keep == "best" and not heldout:
        what = "The best epoch is chosen on held-out preferences, and there are none."
        raise UsageError(what, where="--keep best", fix="a larger --holdout")
    keep_best = config.keep != "last" and bool(heldout)
    return basis.training(examples, loss_terms, heldout, keep_best=keep_best, beta=beta), meta


def prepare_actor(
    run: Run, config: TrainActorConfig, reporter: Reporter, *, weights: bool = True
) -> tuple[Training, TrainedMeta]:
    """Prepare the training of an actor by a credit rule; see `prepare_critic`."""
    check_openrlhf(config)
    needed_by = f"train-actor --algorithm {config.algorithm}"
    rule, rewards = credit_rule(config.algorithm, config.rule_option), task_kind(run.manifest().task).rewards
    if rule.value_head or getattr(rule, "resample", False):
        what = f"The rule {rule.name} learns with these options from dialogues that the training itself plays."
        fix = f"sweet train-online --algorithm {rule.name}"
        raise UsageError(what, where=option("algorithm", rule.name), fix=fix)
    sources = Sources.find(run, rule.reads, config.from_, allow_test=config.allow_test, needed_by=needed_by)
    settings = CriticSettings(config.device, config.max_length)
    critic = RunCritic.find(run, rule, config.critic, settings, reporter, needed_by=needed_by)
    inputs = sources.inputs if critic is None else [*sources.inputs, critic.artifact]
    basis = Basis.load(run, config, config.algorithm, inputs, reporter, weights)
    batch = sources.batch(rule.reads, rewards)
    if missing := missing_rewards(rule, batch.dialogues.values()):
        raise UsageError(missing, where=batch.source, fix="--rule-option turns=NAME, or other scores (--from)")
    models = starting_policy(basis, rule, critic, planned=not weights)
    credits = draw(rule.credit(batch, models), config.limit, config.seed)
    figures = dict(models.reward_figures or {})
    if figures:
        learned, accuracy = count(figures["reward_preferences"], "preference"), percent(figures["reward_accuracy"])
        reporter.say(f"Reward model: {learned}, loss {figures['reward_loss']:.4f}, accuracy {accuracy}.")
    if rule.grouped:
        figures |= {"groups": len(batch.groups()), "equal_groups": len(batch.equal_groups())}
        if equal := figures["equal_groups"]:
            reporter.say(f"Equal rewards: {equal:,} of {count(figures['groups'], 'group')} of dialogues.")
    training = basis.training(
        basis.builder.credits(batch, credits, models),
        rule.objective(config.beta, basis.hyperparameters.nll, config.protocol),
        beta=config.beta,
        trains_reward=rule.trains_reward,
        figures=figures,
    )
    meta = TrainedMeta(
        algorithm=config.algorithm,
        rule_option=config.rule_option,
        protocol=config.protocol,
        turn_tokens=config.supervised,
        agent_system=prompt_of_actor(
            task_kind(run.manifest().task), (credit.of for credit in credits), batch.dialogues, reporter
        ),
    )
    return training, meta


def _preference_examples(
    run: Run, config: TrainCriticConfig, reporter: Reporter, weights: bool
) -> tuple[Basis, list[Example], list[Example]]:
    """Build the examples of a critic that learns preferences, and the held-out ones."""
    sources = Sources.find(run, "preferences", config.from_, allow_test=config.allow_test, needed_by=config.stage)
    learner = "regression" if config.variant == "regression" else "critic"
    basis = Basis.load(run, config, learner, sources.inputs, reporter, weights)
    train, heldout = hold_out(sources.preferences(), config.holdout, config.seed)
    build = partial(basis.builder.dialogues, sources.dialogues(), reveal=config.variant != "no-info")
    return basis, build(draw(train, config.limit, config.seed)), build(heldout)


def _outcome_examples(
    run: Run, config: TrainCriticConfig, reporter: Reporter, weights: bool
) -> tuple[Basis, list[Example], list[Example]]:
    """Build the examples of a regression head that learns outcomes: every scored dialogue.

    The held-out tasks are those that a training on the preferences of the same scores holds out, and the critic is
    measured on its preferences there.
    """
    rule = task_kind(run.manifest().task).rewards
    if config.target == "binary" and rule.solved is None:
        what = f"No task of the kind {run.manifest().task} is ever solved: its rewards are degrees."
        raise UsageError(what, where="--target binary", fix="--target real, or preference")
    sources = _scores_to_learn(run, config)
    basis = Basis.load(run, config, "regression", sources.inputs, reporter, weights)
    batch = sources.batch("scores", rule)
    dialogues, rewards = batch.dialogues, batch.rewards
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
    return Sources.find(run, "scores", config.from_, allow_test=config.allow_test, needed_by=config.stage)
