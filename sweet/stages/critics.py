"""Critics loaded to judge: those of a run, and the model that one would start from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sweet.errors import UsageError
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.actors import recorded_model
from sweet.stages.base import Reporter
from sweet.stages.judge import Reads

if TYPE_CHECKING:
    from sweet.learn.critic import Critic
    from sweet.stages.rank import RankConfig

CPU_TOKENS = 8192
"""Of one forward pass on a CPU: more than a training's, for nothing is kept for a backward pass, and what begins alike
is cut up less."""


def load_critic(run: Run, artifact: Artifact, config: RankConfig, reporter: Reporter) -> Critic:
    """The critic of the kind that it was trained as: with its head, or with its reference, checked to speak the same
    vocabulary."""
    from sweet.learn.critic import AdvantageCritic, check_same_vocabulary
    from sweet.learn.head import load_head
    from sweet.learn.pictures import Eye
    from sweet.learn.regression import RegressionCritic
    from sweet.learn.tokens import ChatEncoder
    from sweet.llm.pretrained import load_model, load_tokenizer
    from sweet.stages.album import RunAlbum, page_encoder, shows_pages

    path, variant = str(run.file(artifact)), artifact.meta.get("variant")
    tokenizer = load_tokenizer(path)
    model = load_model(path, config.device, tokenizer=tokenizer)
    target: Any = artifact.meta.get("target")
    how = _reading(config, model) | {"recipe": config.recipe or artifact.meta.get("recipe") or "paper"}
    if variant == "regression":
        if config.reference is not None:
            what = f"{artifact.id} has a regression head, which is measured against no reference."
            raise UsageError(what, where="--reference", fix="leave it out")
        load_head(model, run.file(artifact))
        encoder = ChatEncoder(tokenizer)
        if shows_pages(run, path):
            rollouts = run.input_of(artifact, "rollouts")
            encoder = page_encoder(run, rollouts, tokenizer, Eye(path), RunAlbum(run, reporter))
        return RegressionCritic(model, encoder, target=target, **how)
    base = config.reference or recorded_model(run, artifact, "base")
    if not base:
        what = f"{artifact.id} does not say which model it started from, against which it is measured."
        raise UsageError(what, where=f"manifest.json, {artifact.id}, meta.base", fix="--reference MODEL")
    check_same_vocabulary(tokenizer, load_tokenizer(base), artifact.id, base)
    reference = load_model(base, config.device, tokenizer=tokenizer)
    return AdvantageCritic(model, reference, tokenizer, informed=variant != "no-info", **how)


def load_untrained(name: str, config: RankConfig) -> Critic:
    """The model that a critic would start from, as a judge: it is measured against itself without c."""
    from sweet.learn.critic import AdvantageCritic
    from sweet.llm.pretrained import load_model, load_tokenizer

    tokenizer = load_tokenizer(name)
    model = load_model(name, config.device, tokenizer=tokenizer)
    return AdvantageCritic(model, model, tokenizer, blind_reference=True, **_reading(config, model))


def _reading(config: RankConfig, model: Any) -> dict[str, Any]:
    """How a critic reads."""
    from sweet.library import resolve_device
    from sweet.stages.training import GPU_TOKENS, context_of

    on_gpu = resolve_device(config.device).type == "cuda"
    return {
        "max_length": config.max_length or context_of(model),
        "budget": config.micro_batch_tokens or (GPU_TOKENS if on_gpu else CPU_TOKENS),
        "share": config.packing == "tree",
    }


def tell_dropped(reader: Reads, reporter: Reporter) -> None:
    """Warn of early turns that the critic was not shown."""
    if reader.dropped:
        reporter.warn(f"{reader.dropped} early turns were left out to fit --max-length {reader.max_length}.")
