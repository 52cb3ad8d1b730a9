"""`sweet train-critic` and `sweet train-actor`: their options, the data each learns from, and what is minimised.

The critic learns from trajectory preferences with the training-time information in sight, equation (2) of the paper;
one with a regression head may learn the outcomes of dialogues instead.
The actor learns from step-level pairs without it (`sweet`), or by one of the baselines: trajectory preferences
(`multi-turn-dpo`), likelihood of the dialogues that solved their task or are its best (`rft`). What comes before all of
these, a model that has yet to learn how a dialogue goes, learns from every dialogue (`sft`). How it is trained is the
same for all and lives in `sweet.training.trainer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweet.errors import SweetError, UsageError
from sweet.hints import Hint, option, stage
from sweet.preferences.label import learnable, preferences, usable_dialogues
from sweet.runs.manifest import Kind
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.stages.plans import Plan
from sweet.stages.rows import Pair
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import RewardRule
from sweet.tasks.trajectory import Trajectory
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.metrics import TrainWork
from sweet.training.sources import Sources

if TYPE_CHECKING:
    from sweet.training.hyperparameters import Learner
    from sweet.training.trainer import Training


LEARNS_FROM: dict[str, Kind] = {
    "sweet": "pairs",
    "multi-turn-dpo": "preferences",
    "rft": "scores",
    "sft": "rollouts",
}


def run_train_critic(run: Run, config: TrainCriticConfig, reporter: Reporter) -> StageResult:
    """Train the critic on the run's preferences, into a folder in Hugging Face layout."""
    if config.node_rank:
        from sweet.training.nodes import take_part

        return take_part(run, config, "train-critic", "critic", reporter)
    training, meta = _critic(run, config, reporter)
    return training.run_stage("train-critic", "critic", meta)


def plan_train_critic(run: Run, config: TrainCriticConfig, reporter: Reporter) -> Plan[TrainWork]:
    """Return the plan of `run_train_critic`."""
    from sweet.training.plan import plan

    return plan(*_critic(run, config, reporter, weights=False))


def _critic(
    run: Run, config: TrainCriticConfig, reporter: Reporter, *, weights: bool = True
) -> tuple[Training, dict[str, Any]]:
    """The critic's training, ready to run, and what its artifact says of itself."""
    if config.engine == "openrlhf":
        raise _beyond_openrlhf("the critic")
    _check_critic(config)
    meta: dict[str, Any] = {"variant": config.variant, "recipe": config.recipe}
    if config.variant == "regression":
        meta["target"] = config.target
    else:
        meta["normalize"] = config.normalize or ("trajectory" if config.recipe == "upstream" else "turn")
    prepare = _preference_critic if config.target == "preference" else _outcome_critic
    training = prepare(run, config, reporter, meta, weights)
    if config.keep == "best" and not training.heldout:
        raise UsageError(
            "Nothing is held out to tell the best by.",
            where=option("keep", "best"),
            fix=Hint("a larger ", option("holdout")),
        )
    training.keep_best = config.keep != "last" and bool(training.heldout)
    return training, meta


def _preference_critic(
    run: Run, config: TrainCriticConfig, reporter: Reporter, meta: dict[str, Any], weights: bool
) -> Training:
    """The training of a critic on preferences: by equation (3), or with a regression head."""
    from sweet.learn.data import Objective
    from sweet.training.examples import dialogue_examples, hold_out
    from sweet.training.trainer import Training

    regression = config.variant == "regression"
    sources = Sources.find(run, "preferences", config.from_, needed_by="train-critic")
    learner: Learner = "regression" if regression else "critic"
    training = Training(run, config, learner, sources.inputs, reporter, weights=weights)
    kept, apart = hold_out(sources.preferences(), config.holdout, config.seed)
    with_info = config.variant != "no-info"
    dialogues = sources.dialogues()
    training.examples = dialogue_examples(training, dialogues, training.draw(kept), reveal=with_info)
    training.heldout = dialogue_examples(training, dialogues, apart, reveal=with_info)
    nll = training.hyper.nll
    if regression:
        training.objective = Objective(config.beta, nll, target="preference")
    else:
        training.objective = Objective(config.beta, nll, meta["normalize"])
    return training


def _check_critic(config: TrainCriticConfig) -> None:
    """Raise UsageError where options do not go together."""
    if config.beta == 0 and config.target == "preference":
        raise UsageError(
            "Without log-ratios a critic has no preferences to learn.", where=option("beta", 0), fix=option("beta", 0.1)
        )
    if config.variant != "regression":
        if config.target != "preference":
            what = "Only a regression head has a target: the other variants learn from preferences."
            raise UsageError(what, where=option("target", config.target), fix=option("variant", "regression"))
        if config.image_pixels != TrainCriticConfig.model_fields["image_pixels"].default:
            what = "Only a regression head is shown screenshots: the other variants read the reference's HTML."
            raise UsageError(
                what, where=option("image_pixels", config.image_pixels), fix=option("variant", "regression")
            )
        return
    if config.normalize is not None:
        what = "A regression head has no log-ratios to average."
        raise UsageError(what, where=option("normalize", config.normalize), fix="leave it out")
    if config.target != "preference" and config.nll:
        what = "The likelihood term is of the chosen side, and the target learns from dialogues that failed too."
        raise UsageError(
            what, where=option("nll", config.nll), fix=Hint(option("target", "preference"), ", or leave it out")
        )


def _outcome_critic(
    run: Run, config: TrainCriticConfig, reporter: Reporter, meta: dict[str, Any], weights: bool
) -> Training:
    """The training of a regression head on every scored dialogue. The tasks kept apart are those that a training on the
    preferences of the same scores keeps apart, and its preferences there are what it is measured on."""
    from sweet.learn.data import Objective
    from sweet.training.examples import dialogue_examples, hold_out
    from sweet.training.trainer import Training

    rule = task_kind(run.manifest().task).rewards
    if config.target == "binary" and rule.solved is None:
        what = f"No task of the kind {run.manifest().task} is ever solved: its rewards are degrees."
        raise UsageError(what, where=option("target", "binary"), fix=Hint(option("target", "real"), ", or preference"))
    sources = _scores_to_learn(run, config.from_)
    training = Training(run, config, "regression", sources.inputs, reporter, weights=weights)
    dialogues, rewards = sources.dialogues(), sources.rewards()
    usable = usable_dialogues(dialogues.values(), rewards)
    _, apart = hold_out(list(preferences(usable, rewards, rule)), config.holdout, config.seed)
    unseen = {preference.task_id for preference in apart}
    kept = sorted(trajectory.id for trajectory in usable if trajectory.task_id not in unseen)
    goals = {name: rule.worth(reward) for name, reward in rewards.items()} if config.target == "binary" else rewards
    training.examples = dialogue_examples(training, dialogues, training.draw(kept), reveal=True, goals=goals)
    training.heldout = dialogue_examples(training, dialogues, apart, reveal=True, goals=goals)
    training.objective = Objective(None, 0.0, target=meta["target"])
    return training


def _scores_to_learn(run: Run, named: Sequence[str]) -> Sources:
    """The scores behind the newest preferences, as all targets learn from the same dialogues; where there are no
    preferences, the newest scores."""
    labelled = run.manifest().of_kind("preferences", "done")
    if not named and labelled:
        return Sources(run, [run.input_of(labelled[-1], "scores")])
    return Sources.find(run, "scores", named, needed_by="train-critic")


def run_train_actor(run: Run, config: TrainActorConfig, reporter: Reporter) -> StageResult:
    """Train the actor by the method asked for, into a folder that `rollout --agent` takes."""
    from sweet.training.openrlhf import train_by_openrlhf

    if config.node_rank:
        from sweet.training.nodes import take_part

        return take_part(run, config, "train-actor", "actor", reporter)
    training, pairs = _actor(run, config, reporter)
    if config.engine == "openrlhf":
        return train_by_openrlhf(training, pairs)
    return training.run_stage("train-actor", "actor", {"method": config.method, "recipe": config.recipe})


def plan_train_actor(run: Run, config: TrainActorConfig, reporter: Reporter) -> Plan[TrainWork]:
    """Return the plan of `run_train_actor`."""
    from sweet.training.plan import plan

    return plan(_actor(run, config, reporter, weights=False)[0], {"method": config.method})


def _actor(
    run: Run, config: TrainActorConfig, reporter: Reporter, *, weights: bool = True
) -> tuple[Training, list[Pair]]:
    """The actor's training, ready to run, and its pairs where the method learns from pairs."""
    from sweet.learn.data import Objective
    from sweet.training.examples import dialogue_examples, pair_examples
    from sweet.training.trainer import Training

    needed_by = f"train-actor --method {config.method}"
    sources = Sources.find(run, LEARNS_FROM[config.method], config.from_, needed_by=needed_by)
    if config.engine == "openrlhf" and config.method != "sweet":
        raise _beyond_openrlhf(config.method)
    training = Training(run, config, config.method, sources.inputs, reporter, weights=weights)
    hyper = training.hyper
    pairs: list[Pair] = []
    if config.method == "sweet":
        pairs = training.draw(sources.pairs())
        if weights and config.engine == "openrlhf":  # which encodes them itself
            return training, pairs
        training.examples = pair_examples(training, pairs)
        # The published actor's likelihood term has no response mask.
        training.objective = Objective(config.beta or None, hyper.nll, "none", whole_nll=config.recipe == "upstream")
    elif config.method == "multi-turn-dpo":
        rows = training.draw(sources.preferences())
        training.examples = dialogue_examples(training, sources.dialogues(), rows, reveal=False)
        training.objective = Objective(config.beta or None, hyper.nll, "none")
    else:
        dialogues = sources.dialogues()
        if config.method == "sft":
            kept = sorted(dialogue.id for dialogue in dialogues.values() if learnable(dialogue))
        else:
            kept = _worth_imitating(dialogues, sources, task_kind(run.manifest().task).rewards)
        training.examples = dialogue_examples(training, dialogues, training.draw(kept), reveal=False)
        training.objective = Objective(None, hyper.nll)
    return training, pairs


def _beyond_openrlhf(what: str) -> UsageError:
    return UsageError(
        f"OpenRLHF's DPO takes one prompt for both sides of a pair, and the data of {what} have none.",
        where=option("engine", "openrlhf"),
        fix=Hint(option("engine", "torch"), ", or deepspeed for several devices"),
    )


def _worth_imitating(dialogues: Mapping[str, Trajectory], sources: Sources, rule: RewardRule) -> list[str]:
    """Ids of the dialogues that rejection fine-tuning keeps, in order (see sweet.tasks.scores.RewardRule)."""
    rewards = sources.rewards()
    usable = usable_dialogues(dialogues.values(), rewards)
    ids = kept(sorted((dialogue.id, dialogue.task_id) for dialogue in usable), rewards, rule)
    if not ids:
        raise SweetError(
            "No dialogue solved its task, so there is nothing to fine-tune on."
            if rule.solved is not None
            else "No dialogue is better than another one of its task, so there is nothing to fine-tune on.",
            where=sources.inputs[0].id,
            fix=Hint(stage("rollout"), " with more ", option("samples"), ", then ", stage("eval")),
        )
    return ids


def kept(dialogues: Sequence[tuple[str, str]], rewards: Mapping[str, float], rule: RewardRule) -> list[str]:
    """Which of some dialogues (id, task id) rejection fine-tuning keeps, in their order."""
    if rule.solved is not None:
        return [name for name, _ in dialogues if rewards[name] >= rule.solved]
    tasks: dict[str, list[str]] = {}
    for name, task in dialogues:
        tasks.setdefault(task, []).append(name)
    ranges = [(max(names, key=lambda n: rewards[n]), min(rewards[n] for n in names)) for names in tasks.values()]
    best = {name for name, least in ranges if rewards[name] > least}
    return [name for name, _ in dialogues if name in best]
