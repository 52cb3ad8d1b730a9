"""`sweet train-actor --engine openrlhf`: OpenRLHF's command trains on the pairs, and its model becomes the actor."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from sweet.credit.base import Hyperparameters
from sweet.credit.registry import rule_class
from sweet.errors import SweetError, UsageError
from sweet.hints import option
from sweet.learn import slurm
from sweet.learn.openrlhf import CHECKPOINTS, DATA, OUTPUT, find_python, steps, train, write_pairs
from sweet.learn.rows import Pair
from sweet.learn.trainee import write_ends
from sweet.llm.adapter import find_adapter
from sweet.llm.pretrained import absolute_name, model_path
from sweet.runs.run import Run
from sweet.stages.artifacts import write_prompt
from sweet.stages.base import Reporter, StageResult
from sweet.stages.frame import Frame
from sweet.stages.meta import TrainedMeta
from sweet.tasks.registry import task_kind
from sweet.training.basis import Basis
from sweet.training.config import TrainActorConfig, TrainConfig
from sweet.training.examples import draw
from sweet.training.layout import by_slurm
from sweet.training.metrics import TrainMetrics
from sweet.training.sources import Sources, prompt_of_actor

FOLDER = "openrlhf"
"""In the actor's folder while it is trained: the data, OpenRLHF's checkpoints, its model."""
MAX_LENGTH = 16384
"""Tokens of a pair at most, where neither the options nor the model has a limit."""
ENGINE, OTHERS = "--engine openrlhf", "--engine torch, or deepspeed for several devices"


def check_openrlhf(config: TrainConfig) -> None:
    """Raise UsageError where OpenRLHF would train, and it cannot train this, does not support an option, or the credit
    rule is unknown."""
    if config.engine != "openrlhf":
        return
    actor = config if isinstance(config, TrainActorConfig) else None
    learner, rule_option = (rule_class(actor.algorithm).name, actor.rule_option) if actor else ("the critic", [])

    def refuse(wrong: object, where: str, what: str, fix: str = "") -> None:
        if wrong:
            raise UsageError(what, where=f"{where} {ENGINE}".strip(), fix=f"{fix}{OTHERS}")

    what = f"OpenRLHF's DPO needs one prompt for both sides of a pair, and the data of {learner} have none."
    refuse(learner != "sweet", "", what)
    what = "OpenRLHF has a loss of its own, which does not know the options of a credit rule."
    refuse(rule_option, option("rule_option", *rule_option[:1]), what)
    what = "OpenRLHF sums over all tokens of a reply, its thought included."
    refuse(config.supervised != "both", option("turn_tokens", config.supervised), what, "--turn-tokens both, or ")
    refuse(config.log_to, "--log-to", "OpenRLHF does not report its metrics.")
    what = "OpenRLHF's likelihood term is of the reply alone, and upstream's of the whole dialogue."
    refuse(config.protocol == "upstream", "--protocol upstream", what)
    refuse(config.lora, "--lora", "LoRA is not supported with OpenRLHF.")
    what = "OpenRLHF's command is started by DeepSpeed's launcher, which reads hosts from a file."
    refuse(by_slurm(config), slurm.WORD, what, "--hostfile FILE, or ")


def arguments(config: TrainConfig, used: Hyperparameters, model: str, max_length: int, *, resume: bool) -> list[str]:
    """Return the arguments of OpenRLHF's command.

    Paths of data are relative, because OpenRLHF splits them at commas and at signs.

    Args:
        model: the initial model, also the reference: an absolute directory or a hub id.
        max_length: tokens of prompt and reply; OpenRLHF skips longer pairs.
    """
    values: dict[str, Any] = {
        "model.model_name_or_path": model,
        "ref.model_name_or_path": model,
        "data.dataset": DATA,
        "data.prompt_key": "prompt",
        "data.chosen_key": "chosen",
        "data.rejected_key": "rejected",
        "data.max_len": max_length,
        "train.batch_size": used.batch,
        "train.micro_batch_size": 1,
        "train.max_epochs": used.epochs,
        "train.seed": config.seed,
        "adam.lr": used.lr,
        "model.beta": config.beta,
        "model.nll_loss_coef": used.nll,
        "lr_scheduler": "cosine_with_min_lr",
        "lr_warmup_ratio": config.warmup,
        "min_lr_ratio": 0.1,
        "max_norm": config.max_grad_norm,
        "adam.weight_decay": config.weight_decay,
        "model.label_smoothing": config.label_smoothing,
        "ds.zero_stage": config.zero_stage,
        "ds.param_dtype": "bf16",
        "ckpt.output_dir": OUTPUT,
        "ckpt.path": CHECKPOINTS,
        "ckpt.save_steps": config.save_every,
    }
    flags = {
        "model.gradient_checkpointing_enable": True,
        "ds.adam_offload": config.offload != "none",
        "ref.offload": config.offload == "all",
        "ckpt.load_enable": resume,
    }
    words = [word for name, value in values.items() if value is not None for word in (f"--{name}", str(value))]
    return [*words, "--adam.betas", "0.9", "0.95", *(f"--{name}" for name, is_set in flags.items() if is_set)]


def command(python: str, config: TrainConfig, arguments: Sequence[str]) -> list[str]:
    """Return the whole command line: DeepSpeed's launcher with OpenRLHF's module."""
    start = [python, "-m", "deepspeed.launcher.runner"]
    if config.hostfile is not None:
        start.append(f"--hostfile={config.hostfile.absolute()}")
    if config.devices is not None:
        start.append(f"--num_gpus={config.devices}")
    return [*start, "--module", "openrlhf.cli.train_dpo", *arguments]


def train_by_openrlhf(run: Run, config: TrainActorConfig, reporter: Reporter) -> StageResult[TrainMetrics]:
    """Have OpenRLHF train the actor on step-level pairs, which it encodes itself, inside an attempt.

    Raises:
        UsageError: OpenRLHF is not installed, or cannot train on this.
        SweetError: there is nothing to train on, or its command failed.
    """
    check_openrlhf(config)
    needed_by = f"train-actor --algorithm {config.algorithm}"
    sources = Sources.find(run, "pairs", config.from_, allow_test=config.allow_test, needed_by=needed_by)
    basis = Basis.load(run, config, config.algorithm, sources.inputs, reporter, weights=False)
    model, used = basis.model, basis.hyperparameters
    pairs = draw(sources.pairs(), config.limit, config.seed)
    _check_pairs(basis, pairs)
    python, version = find_python()
    meta = TrainedMeta(algorithm=config.algorithm, protocol=config.protocol, turn_tokens=config.supervised)
    kind = task_kind(run.manifest().task)
    prompt = prompt_of_actor(kind, pairs, {}, reporter)
    meta = meta.model_copy(update={"base": model.base, **vars(used), "beta": config.beta, "agent_system": prompt})
    environment = {"openrlhf": version}
    with Frame(config.stage, run, config, reporter, inputs=basis.inputs, environment=environment) as frame:
        draft = frame.artifact(config.makes, meta)
        folder, metrics = draft.path / FOLDER, frame.made_before(TrainMetrics, [draft])
        if metrics is None:
            folder.mkdir(exist_ok=True)
            write_pairs(folder, model.encoder, pairs)
            resume = config.resume and (folder / CHECKPOINTS).exists()
            name, max_length = absolute_name(model_path(model.base)), model.max_length or MAX_LENGTH
            words = command(python, config, arguments(config, used, name, max_length, resume=resume))
            frame.attempt.environment["command"] = words
            log = frame.attempt.log_path.with_suffix(".openrlhf.log")
            frame.say(f"OpenRLHF {version} trains on {len(pairs)} pairs; its output is in {log}.")
            for file in train(words, folder, log).iterdir():
                file.replace(draft.path / file.name)
            write_ends(model.trainee.model, model.encoder.tokenizer, draft.path)
            write_prompt(draft.path, kind, meta.agent_system)
            metrics = TrainMetrics(
                examples=len(pairs),
                steps=steps(len(pairs), used.batch, used.epochs),
                parameters=model.trainee.parameters,
                seconds=frame.seconds,
            )
            frame.made(metrics, [draft])
        shutil.rmtree(folder, ignore_errors=True)
        return frame.result(metrics, frame.finish(draft, metrics))


def _check_pairs(basis: Basis, pairs: Sequence[Pair]) -> None:
    """Raise an error where OpenRLHF cannot train this model on these pairs."""
    source, base, count, batch = basis.inputs[0].id, basis.model.base, len(pairs), basis.hyperparameters.batch
    if not count:
        raise SweetError("There is nothing to train on.", where=source, fix="a larger --limit or run")
    if count < batch:
        what = f"OpenRLHF omits an incomplete step, and there are only {count} pairs."
        raise UsageError(what, where=option("batch", batch), fix=f"{option('batch', count)}, or more pairs")
    if find_adapter(base) is not None:
        raise UsageError(f"OpenRLHF starts from whole models, and {base} is a LoRA adapter.", where=ENGINE, fix=OTHERS)
    if unpaired := [pair.id for pair in pairs if pair.rejected is None]:
        what = f"OpenRLHF's DPO compares two replies, and {unpaired[0]} has one."
        raise UsageError(what, where=source, fix="--engine torch, or sweet pair with --unpaired omit")
