"""How the critic and the actor are trained: load, encode, train, save, record.

Kept apart from `sweet.training.stage`, whose options must be readable without torch. The folder of a training holds its
checkpoint until the training is done, and then the model alone. With one device the training happens in this process;
with DeepSpeed in several beneath it, which hold the weights, so that this one needs only the model's shapes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sweet.errors import SweetError, UsageError
from sweet.hf import resolve_device
from sweet.hints import Hint, option
from sweet.learn.batches import GPU_TOKENS
from sweet.learn.best_checkpoint import best_files
from sweet.learn.data import Example, Objective, Pool
from sweet.learn.distributed import train_in_ranks, world_size
from sweet.learn.job import Job, checkpoint_path
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.metrics import Record, Summary
from sweet.learn.reference import ReferenceCache
from sweet.learn.tokens import ChatEncoder, TooLong
from sweet.learn.trainee import Trainee
from sweet.learn.vision_processor import VisionProcessor
from sweet.learn.zero import ZeroSettings
from sweet.llm.pretrained import context_length, load_tokenizer
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_of, agent_system
from sweet.stages.base import Reporter, StageResult, digest_of
from sweet.stages.rates import GPUS
from sweet.stages.screenshots import RunAlbum, page_encoder, shows_pages
from sweet.tasks.registry import task_kind
from sweet.training.config import TrainConfig
from sweet.training.hyperparameters import Hyper, Learner, resolve
from sweet.training.layout import ZERO, layout_of, start_of, unused_nodes
from sweet.training.loggers import FigureLogs, check_logs, naming

CHECKPOINT = "checkpoint.pt"
RANKS = "ranks"
"""The folder in which several ranks work."""
CPU_TOKENS = 2048
"""Tokens of one forward pass of a training on a CPU, where `--micro-batch-tokens` is not given."""
LEFT_OUT = 0.1
"""Share of the examples that may be left out for their length. More would be another data set than the one named."""
SHOWN = {
    "loss": "loss",
    "accuracy": "accuracy",
    "margin": "margin",
    "grad_norm": "gradient",
    "lr": "lr",
    "tokens_per_second": "tokens/s",
}
"""Figures beside the bar, and what they are called there."""

T = TypeVar("T")


class Training:
    """One training: the model it starts from, what it learns from, what is minimised.

    The callers set `examples`, `heldout` and `objective`, and `keep_best` where the best epoch on what is held out is
    wanted, then call `run_stage`.

    Args:
        weights: False for one that is only planned (`sweet.stages.plans`): the model's shapes are enough.
    """

    def __init__(
        self,
        run: Run,
        config: TrainConfig,
        learner: Learner,
        inputs: Sequence[Artifact],
        reporter: Reporter,
        *,
        weights: bool = True,
    ) -> None:
        self.run, self.config, self.inputs, self.reporter = run, config, list(inputs), reporter
        self.layout = layout_of(config)
        if unused := unused_nodes(config):
            reporter.warn(unused)
        check_logs(config.log_to)
        rollouts = next(artifact for artifact in inputs if artifact.kind == "rollouts")
        self.base = config.model or agent_of(run, rollouts, "model")
        learned = ", ".join(artifact.id for artifact in inputs if artifact.kind == inputs[0].kind)
        reporter.say(f"Training on {learned} from {self.base}.")
        self.tokenizer = load_tokenizer(self.base)
        self.encoder = ChatEncoder(self.tokenizer)
        self.sees_pages = learner == "regression" and shows_pages(run, self.base)
        if self.sees_pages:
            self._see_pages(rollouts, weights)
        elif learner == "regression" and task_kind(run.manifest().task).visual:
            reporter.say(f"The critic reads pages as HTML: {self.base} does not see pictures.")
        self.on_gpu = resolve_device(config.device).type == "cuda"
        whole = weights and self.layout is None
        load = partial(Trainee.load, device=config.device) if whole else Trainee.on_meta
        start = start_of(config, self.base, self.on_gpu, head=learner == "regression")
        self.trainee: Trainee = load(start, tokenizer=self.tokenizer)
        self.parameters = self.trainee.parameters
        self.hyper: Hyper = resolve(
            learner,
            self.parameters,
            config.recipe,
            lr=config.lr,
            nll=config.nll,
            epochs=config.epochs,
            batch=config.batch,
            lora=config.lora is not None,
        )
        self.max_length: int | None = config.max_length or context_length(self.trainee.model)
        self.system = agent_system(run, rollouts)
        self.pool = Pool()
        self.examples: list[Example] = []
        self.heldout: list[Example] = []
        self.left_out: list[TooLong] = []
        self.objective: Objective | None = None
        self.keep_best = False

    def _see_pages(self, rollouts: Artifact, weights: bool) -> None:
        """From now on encode dialogues with the screenshots of their pages."""
        if self.layout is not None:
            raise UsageError(
                "Several devices are not handed pictures yet.",
                where=Hint(option("engine", self.config.engine), " ", option("model", self.base)),
                fix=Hint(
                    option("engine", "torch"), ", with ", option("lora"), " where memory is short, or a model of text"
                ),
            )
        eye = VisionProcessor(self.base, getattr(self.config, "image_pixels", None))
        album = RunAlbum(self.run, self.reporter, renders=weights)
        self.encoder = page_encoder(self.run, rollouts, self.tokenizer, eye, album)
        self.reporter.say(
            "The critic sees the screenshots of the reference and of each turn. Such dialogues are computed one by "
            "one or in padded batches: prefix trees hold no pictures."
        )

    def draw(self, items: Sequence[T]) -> list[T]:
        """At most `--limit` of the items, drawn by the seed, in their order."""
        limit = self.config.limit
        if limit is None or limit >= len(items):
            return list(items)
        keys = sorted(range(len(items)), key=lambda i: digest_of([self.config.seed, "limit", i]))
        return [items[i] for i in sorted(keys[:limit])]

    def fitting(self, items: Sequence[T], example: Callable[[T], Example]) -> list[Example]:
        """An example of each item, without those that cannot be cut to the length."""
        found = []
        for item in items:
            try:
                found.append(example(item))
            except TooLong as error:
                self.left_out.append(error)
        return found

    def check_examples(self) -> None:
        """Say how many were left out for their length; raise SweetError where those are too many, or none remain."""
        if self.left_out:
            first, every = self.left_out[0], len(self.examples) + len(self.heldout) + len(self.left_out)
            what = f"{len(self.left_out)} of {every} examples do not fit and are left out. {first.what}"
            if len(self.left_out) > LEFT_OUT * every:
                raise UsageError(what, where=self.inputs[0].id, fix=first.fix)
            self.reporter.warn(what)
        if not self.examples:
            raise SweetError(
                "There is nothing to train on.",
                where=self.inputs[0].id,
                fix=Hint("a larger ", option("limit"), " or run"),
            )

    @property
    def zero(self) -> ZeroSettings:
        """What several devices keep in parts."""
        return ZeroSettings(ZERO if self.config.zero is None else self.config.zero, self.config.offload)

    def loop_settings(self) -> LoopSettings:
        config, hyper = self.config, self.hyper
        return LoopSettings(
            lr=hyper.lr,
            epochs=hyper.epochs,
            batch=hyper.batch,
            seed=config.seed,
            token_budget=config.micro_batch_tokens or (GPU_TOKENS if self.on_gpu else CPU_TOKENS),
            save_every=config.save_every,
            grouped=config.shuffle == "grouped",
            share=config.packing == "tree",
            keep_best=self.keep_best,
        )

    def run_stage(self, stage: str, kind: Kind, meta: dict[str, Any]) -> StageResult:
        """Train inside an attempt and finish the artifact."""
        config, hyper = self.config, self.hyper
        self.check_examples()
        if self.pool.dropped:
            self.reporter.warn(f"{self.pool.dropped} early turns were left out to fit --max-length {self.max_length}.")
        used = {"lr": hyper.lr, "nll": hyper.nll, "epochs": hyper.epochs, "batch": hyper.batch}
        meta = {"base": self.base, **meta, **used, "beta": config.beta}
        if self.trainee.start.lora is not None:
            lora = self.trainee.start.lora
            meta |= {"lora": lora.rank, "lora_alpha": lora.alpha, "lora_output": config.lora_output}
        held = {GPUS: world_size(self.layout) if self.on_gpu else 0}
        with self.run.attempt(stage, config, inputs=self.inputs, environment=held) as attempt:
            draft = attempt.start_artifact(kind, suffix="", meta=meta, resume=config.resume)
            begun = self._checkpoint(draft.path)
            former = self._finished(draft.id) if draft.resumed and not begun else None
            if former is None:
                named = naming(self.run, draft.id, config.model_dump(mode="json") | meta)
                with (
                    JsonlWriter(attempt.metrics_path) as log,
                    FigureLogs(config.log_to, named, self.reporter) as others,
                ):

                    def tell(record: Record) -> None:
                        log.write(record)
                        others.write(record)

                    summary = self._train(stage, draft.path, tell, attempt.log_path.with_suffix(".ranks.log"))
                (draft.path / CHECKPOINT).unlink(missing_ok=True)
                for path in best_files(draft.path / CHECKPOINT):
                    path.unlink()
                shutil.rmtree(draft.path / RANKS, ignore_errors=True)
                former = {
                    **summary.as_metrics(),
                    **used,
                    "parameters": self.parameters,
                    "trained_parameters": self.trainee.trained,
                    "examples": len(self.examples),
                    "heldout": len(self.heldout),
                    "dropped_turns": self.pool.dropped,
                    "left_out": len(self.left_out),
                }
            metrics = former
            attempt.metrics.update(metrics)
            artifact = attempt.finish_artifact(draft, rows=None)
        return StageResult(stage, self.run.path, metrics, [artifact])

    def _finished(self, name: str) -> dict[str, Any] | None:
        """The metrics of an artifact that an earlier attempt finished; None where none did."""
        attempts = [a for a in self.run.manifest().attempts if name in a.outputs and a.status == "done" and a.metrics]
        if not attempts:
            return None
        self.reporter.say(f"{name} is finished already.")
        return dict(attempts[-1].metrics)

    def _checkpoint(self, folder: Path) -> bool:
        """Whether an attempt before has left a checkpoint. UsageError where it is one of the other engine."""
        single, many = (folder / CHECKPOINT).exists(), checkpoint_path(folder / RANKS).exists()
        if (many and self.layout is None) or (single and self.layout is not None):
            started = "deepspeed" if many else "torch"
            raise UsageError(
                f"The training was begun with the engine {started}, and its checkpoint is of no use to another.",
                where=folder,
                fix=Hint(option("engine", started), ", or train without ", option("resume")),
            )
        return single or many

    def _train(self, title: str, folder: Path, on_row: Callable[[Record], None], ranks_log: Path) -> Summary:
        """Train, with the model in `folder` afterwards, where the checkpoint is left; `on_row` is told each row."""
        config, hyper = self.config, self.hyper
        assert self.objective is not None
        settings = self.loop_settings()
        identity = [config.digest(), vars(hyper), self.base, [ref.sha256 for ref in self.inputs]]
        digest = digest_of(identity)
        steps = settings.steps(len(self.examples))
        trained = f" ({self.trainee.trained:,} trained)" if config.lora else ""
        self.reporter.say(
            f"{self.parameters:,} parameters{trained}, {len(self.examples)} examples, {steps} steps of {hyper.batch}, "
            f"lr {hyper.lr:g}, nll {hyper.nll:g}."
        )
        with self.reporter.progress(title, steps) as bar:

            def tell(record: Record) -> None:
                on_row(record)
                if "loss" in record:
                    bar.advance()
                    bar.note(**{shown: record[name] for name, shown in SHOWN.items() if record[name] is not None})

            if self.layout is None:
                summary = self._train_here(settings, self.objective, digest, folder, tell)
            else:
                job = Job(
                    start=self.trainee.start,
                    output=folder,
                    device="cuda" if self.on_gpu else "cpu",
                    zero=self.zero,
                    settings=settings,
                    objective=self.objective,
                    digest=digest,
                    resume=config.resume,
                    pool=self.pool.sequences,
                    examples=self.examples,
                    heldout=self.heldout,
                )
                summary = train_in_ranks(job, self.layout, folder / RANKS, ranks_log, tell)
        if summary.mfu is None:
            self.reporter.say("No utilisation (mfu): the peak of this device is not known.")
        return summary

    def _train_here(
        self,
        settings: LoopSettings,
        objective: Objective,
        digest: str,
        folder: Path,
        tell: Callable[[Record], None],
    ) -> Summary:
        loop = Loop(
            self.trainee.model,
            self.pool.sequences,
            self.examples,
            objective,
            settings,
            digest=digest,
            heldout=self.heldout,
            checkpoint=folder / CHECKPOINT,
            on_step=tell,
            cache=ReferenceCache(self.base),
        )
        if settings.share and not loop.scorer.max_shared_length and not self.sees_pages:
            self.reporter.say("Sequences are computed one by one: this model's attention takes no prefix tree.")
        if loop.scorer.flex_error is not None:
            self.reporter.say(f"Attention goes block by block, not by FlexAttention: {loop.scorer.flex_error}.")
        summary = loop.run(resume=self.config.resume)
        weights = loop.final_weights()
        assert weights is not None
        self.trainee.load_weights(weights)
        self.trainee.write(self.encoder, folder)
        return summary
