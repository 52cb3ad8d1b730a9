"""What every training has before it has examples, and the training that is made of it with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweet.credit.base import Hyperparameters
from sweet.errors import SweetError, UsageError
from sweet.hints import option
from sweet.learn.batches import token_count
from sweet.learn.components import Example, Objective
from sweet.learn.distributed import Layout
from sweet.learn.estimate import ZeroSettings
from sweet.learn.loop import LoopSettings, learning_rate
from sweet.learn.metrics import Record
from sweet.learn.sequences import Pool
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_of, given_model
from sweet.stages.base import Reporter
from sweet.stages.unseen_tasks import check_not_test
from sweet.tasks.registry import task_kind
from sweet.training.config import Order, TrainConfig, adjacent, order_of
from sweet.training.examples import DialogueEncoder, ExampleBuilder
from sweet.training.hyperparameters import resolve
from sweet.training.layout import layout_of, unused_nodes
from sweet.training.loggers import check_logs
from sweet.training.model import StartingModel, recorded_model, warn_if_too_large
from sweet.training.movement import warn_if_unmoved
from sweet.training.remote import by_service, for_service

MAX_OMITTED = 0.1
"""Share of the examples that may be omitted for their length. Without more of them it would be another data set."""


@dataclass(frozen=True)
class Basis:
    """What every training has before it has examples.

    Attributes:
        learner: critic, regression, or the name of a credit rule.
        inputs: the artifacts that are read.
        layout: of the ranks; None for one device.
    """

    config: TrainConfig
    learner: str
    inputs: list[Artifact]
    layout: Layout | None
    model: StartingModel
    hyperparameters: Hyperparameters
    builder: ExampleBuilder

    @classmethod
    def load(
        cls, run: Run, config: TrainConfig, learner: str, inputs: Sequence[Artifact], reporter: Reporter, weights: bool
    ) -> Basis:
        """Check the options, and load the model or its shapes.

        Args:
            learner: critic, regression, or the name of a credit rule.
            weights: False for a training that is only planned.
        """
        adapted = for_service(config)  # what is recorded is as it was given
        check_not_test(run, inputs, allow=config.allow_test, needed_by=config.stage)
        layout = layout_of(config)
        if warning := unused_nodes(config):
            reporter.warn(warning)
        check_logs(config.log_to)
        rollouts = next(artifact for artifact in inputs if artifact.kind == "rollouts")
        base = given_model(run, config.model) if config.model else agent_of(run, rollouts, "model")
        learned = ", ".join(artifact.id for artifact in inputs if artifact.kind == inputs[0].kind)
        reporter.say(f"Training on {learned} from {base}.")
        loads_here = layout is None and weights and not by_service(config)
        model = recorded_model(run, adapted, base, learner, rollouts, reporter, renders=weights, weights=loads_here)
        passes = task_kind(run.manifest().task).dialogue_epochs
        hyperparameters = resolve(adapted, learner, model.trainee.parameters, config.protocol, passes)
        encoder = DialogueEncoder(model.encoder, config.protocol, model.max_length)
        return cls(config, learner, list(inputs), layout, model, hyperparameters, ExampleBuilder(encoder, inputs[0].id))

    @property
    def zero(self) -> ZeroSettings:
        """What several devices divide among them."""
        return ZeroSettings(self.config.zero_stage, self.config.offload)

    def training(
        self,
        examples: list[Example],
        objective: Objective,
        heldout: Sequence[Example] = (),
        *,
        keep_best: bool = False,
        **attributes: Any,
    ) -> Training:
        """Return the training on these examples.

        Args:
            attributes: further attributes of `Training`.
        """
        config, used = self.config, self.hyperparameters
        order = order_of(config, self.inputs[0].kind, sees_pages=self.model.sees_pages)
        settings = LoopSettings(
            lr=used.lr,
            epochs=used.epochs,
            batch=used.batch,
            seed=config.seed,
            token_budget=self.model.token_budget,
            save_every=config.save_every,
            together=adjacent(order, used.batch),
            share=config.packing == "tree" and not by_service(config),
            keep_best=keep_best,
            warmup=config.warmup,
            clip=config.max_grad_norm,
            weight_decay=config.weight_decay,
        )
        if config.label_smoothing and not objective.compares:
            what = "What is learned here is no preference, whose labels could be smoothed."
            raise UsageError(what, where=option("label_smoothing", config.label_smoothing), fix="omit it")
        objective = replace(objective, smoothing=config.label_smoothing)
        return Training(
            **vars(self),
            examples=examples,
            heldout=list(heldout),
            objective=objective,
            settings=settings,
            shuffle=order,
            **attributes,
        )


@dataclass(frozen=True)
class Training(Basis):
    """A training that is ready to run.

    Attributes:
        heldout: preferences to measure on.
        shuffle: the order that `settings.together` follows.
        beta: as it is recorded; `objective` has None where log-ratios are not used.
        figures: metrics of what the credit rule did: the groups that it compared, the reward model that it trained.
        trains_reward: whether it trains a reward model, also where the training is only planned.
    """

    examples: list[Example]
    heldout: list[Example]
    objective: Objective
    settings: LoopSettings
    shuffle: Order
    beta: float
    figures: Record = field(default_factory=dict)
    trains_reward: bool = False

    @property
    def pool(self) -> Pool:
        """The token sequences of the examples."""
        return self.builder.pool

    @property
    def left_out(self) -> int:
        """The number of examples that were omitted for their length."""
        return len(self.builder.too_long)

    def check(self, reporter: Reporter) -> None:
        """Warn of omitted examples, of a learning rate that cannot change the model, and of too little memory.

        Raises:
            UsageError: more than `MAX_OMITTED` of them are omitted.
            SweetError: none remain.
        """
        if self.builder.too_long:
            first, count = self.builder.too_long[0], len(self.examples) + len(self.heldout) + self.left_out
            what = f"{self.left_out:,} of {count:,} examples too long, and so omitted. {first.what}"
            if self.left_out > MAX_OMITTED * count:
                raise UsageError(what, where=self.builder.source, fix=first.fix)
            reporter.warn(what)
        if not self.examples:
            raise SweetError("There is nothing to train on.", where=self.builder.source, fix="a larger --limit or run")
        trainee, steps = self.model.trainee, self.settings.steps(len(self.examples))
        rates = (learning_rate(step, steps, self.settings) for step in range(steps))
        warn_if_unmoved(trainee, self.learner, rates, reporter.warn)
        if self.layout is None and not by_service(self.config):
            longest = max(token_count(self.pool.sequences, [example]) for example in self.examples)
            warn_if_too_large(self.model, longest, reporter.warn)
