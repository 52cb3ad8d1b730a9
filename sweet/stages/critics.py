"""Loads critics as judges: the critics of a run, and the untrained model that a critic would start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweet.device import Device
from sweet.errors import UsageError
from sweet.hints import option
from sweet.llm.base import Effort
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import recorded_model
from sweet.stages.base import Packing, Reporter
from sweet.stages.intervals import wilson
from sweet.stages.meta import CandidatesMeta, RolloutsMeta, TrainedMeta
from sweet.stages.record import Rate, rate_of
from sweet.tasks.base import CRITIC_TURN_TOKENS, ProtocolName, ReferenceContext, TurnTokens, reference_context_of
from sweet.units import count, rate

if TYPE_CHECKING:
    from sweet.learn.critic import Critic
    from sweet.learn.solution_logprob import SolutionLogprob

CPU_TOKENS = 8192
"""Tokens of one forward pass on a CPU. More than in training: no activations are kept for a backward pass, and larger
batches share more prefixes."""


@dataclass(frozen=True)
class CriticSettings:
    """How a critic judges; the defaults suit the critic, the machine and the model.

    Attributes:
        device: where critic and reference are loaded.
        max_length: tokens of a scored sequence at most; None for the model's context.
        batch_tokens: tokens of one forward pass; None for `CPU_TOKENS` or `GPU_TOKENS`.
        packing: whether shared prefixes are computed once.
        turn_tokens: what the mean of the log-ratios of a turn runs over; None for what the critic was trained with.
        reference: the frozen model of equation (3); None for the model that the critic's training started from.
        reference_context: what the reference reads; None for the protocol's own.
        protocol: None for the protocol that the critic was trained with.
        service: a service of the Tinker interface computes log-probabilities (`sweet.learn.remote`).
    """

    device: Device = "auto"
    max_length: int | None = None
    batch_tokens: int | None = None
    packing: Packing = "tree"
    turn_tokens: TurnTokens | None = None
    reference: str | None = None
    reference_context: ReferenceContext | None = None
    protocol: ProtocolName | None = None
    service: bool = False

    def load(self, name: str, tokenizer: Any) -> Any:
        """Return a model with its weights, or what asks the service for it. An adapter is not merged: in bf16 the sums
        would lose much of what it adds, which a critic is about."""
        from sweet.learn.remote import RemoteScorer
        from sweet.llm.pretrained import load_model
        from sweet.llm.tinker import Service

        if self.service:
            return RemoteScorer(Service(name).training())
        return load_model(name, self.device, tokenizer=tokenizer, spreads=True, merges=False)


def load_critic(run: Run, artifact: Artifact, reporter: Reporter, settings: CriticSettings) -> Critic:
    """Load a critic of a run, with its regression head or its reference model.

    Raises:
        UsageError: the critic has no reference, or the two have different vocabularies; or see `check_settings`.
    """
    from sweet.learn.critic import AdvantageCritic, RegressionCritic, check_same_vocabulary
    from sweet.learn.head import load_head
    from sweet.learn.lora import BaseScorer
    from sweet.learn.sequences import VisionModel
    from sweet.learn.tokens import ChatEncoder
    from sweet.learn.upstream import UpstreamEncoder
    from sweet.learn.vision_processor import vision_processor
    from sweet.llm.adapter import find_adapter
    from sweet.llm.pretrained import absolute_name, load_tokenizer
    from sweet.stages.screenshots import CriticScreenshots, page_encoder, shows_pages

    path, meta = str(run.file(artifact)), TrainedMeta.of(artifact)
    tokenizer = load_tokenizer(path)
    check_settings(artifact, settings)
    model = settings.load(path, tokenizer)
    how = _reader_settings(settings, path) | {"protocol": used_protocol(artifact, settings)}
    if meta.variant == "regression":
        load_head(model, run.file(artifact))
        encoder = UpstreamEncoder(tokenizer) if how["protocol"] == "upstream" else ChatEncoder(tokenizer)
        if shows_pages(run, path):
            rollouts = run.input_of(artifact, "rollouts")
            shots = CriticScreenshots(run, rollouts, reporter)
            encoder = page_encoder(run, rollouts, tokenizer, vision_processor(VisionModel(path)), shots)
        return RegressionCritic(model, encoder, target=meta.target or "preference", **how)
    base = settings.reference or recorded_model(run, artifact, "base")
    if not base:
        what = f"{artifact.id} does not say which model it started from, against which it is measured."
        raise UsageError(what, where=f"manifest.json, {artifact.id}, meta.base", fix="--reference MODEL")
    check_same_vocabulary(tokenizer, load_tokenizer(base), artifact.id, base)
    adapter = None if settings.service else find_adapter(path)
    is_beneath = adapter is not None and adapter.base == absolute_name(base)
    frozen = BaseScorer(model, share=how["share"]) if is_beneath else settings.load(base, tokenizer)
    how["reference_context"] = settings.reference_context
    how["turn_tokens"] = used_turn_tokens(artifact, settings)
    how["effort"] = _effort(run, artifact)
    how["normalize"] = meta.normalize or "turn"
    return AdvantageCritic(model, frozen, tokenizer, informed=meta.variant != "no-info", **how)


def _effort(run: Run, critic: Artifact) -> Effort | None:
    """Return how much the agent was asked to think in the dialogues that a critic was trained on."""
    manifest = run.manifest()
    inputs = [artifact for ref in critic.inputs if (artifact := manifest.artifact(ref.id)) is not None]
    return next((RolloutsMeta.of(artifact).effort for artifact in inputs if artifact.kind == "rollouts"), None)


def used_protocol(artifact: Artifact, settings: CriticSettings) -> ProtocolName:
    """Return the protocol that a critic judges by."""
    return settings.protocol or TrainedMeta.of(artifact).protocol or "paper"


def used_reference_context(artifact: Artifact, settings: CriticSettings) -> ReferenceContext | None:
    """Return what the reference of a critic reads; None where the critic has no reference, or never reads the
    training-time information itself."""
    if TrainedMeta.of(artifact).variant in ("regression", "no-info"):
        return None
    return settings.reference_context or reference_context_of(used_protocol(artifact, settings))


def used_turn_tokens(artifact: Artifact, settings: CriticSettings) -> TurnTokens | None:
    """Return what the mean of a critic's log-ratios runs over; None for a regression head, which has none. In the
    published code (protocol `upstream`) one mean runs over all tokens."""
    meta = TrainedMeta.of(artifact)
    if meta.variant == "regression":
        return None
    if used_protocol(artifact, settings) == "upstream":
        return "both"
    return settings.turn_tokens or meta.turn_tokens or CRITIC_TURN_TOKENS


def warn_if_at_chance(run: Run, critic: Artifact, reporter: Reporter) -> None:
    """Warn of a critic that is not known to be better than chance on what it did not learn from.

    Two measurements are looked up in the manifest: the preferences that its training held out, and the couples of
    replies in its newest ranking whose order the tasks know. Each counts where it was made.
    """
    manifest = run.manifest()
    maker = manifest.attempt(critic.attempt)
    trained = {} if maker is None else maker.metrics
    share, held_out = trained.get("heldout_accuracy"), trained.get("heldout")
    if isinstance(share, int | float) and isinstance(held_out, int) and held_out > 0:
        low, high = wilson(share, held_out)
        accuracy = Rate(value=share, ci_low=low, ci_high=high)
        warn_of_chance(critic, accuracy, f"of {count(held_out, 'held-out preference')}", reporter)
    for ranked in reversed(manifest.of_kind("candidates", "done")):
        attempt = manifest.attempt(ranked.attempt)
        if attempt is None or CandidatesMeta.of(ranked).critic != critic.id:
            continue
        if isinstance(agreement := rate_of(attempt.metrics, "agreement"), Rate):
            warn_of_chance(critic, agreement, couples_in(ranked), reporter)
            break


def couples_in(candidates: Artifact) -> str:
    """Return what the agreement of a judge is a share of, in words."""
    return f"of the couples of replies in {candidates.id}"


def warn_of_chance(critic: Artifact, ordered: Rate, what: str, reporter: Reporter) -> None:
    """Warn of a critic if it is not known to be better than chance.

    Args:
        ordered: the share that it puts in order, of `what`.
    """
    if ordered.ci_low <= 0.5:
        share = rate(ordered.value, ordered.ci_low, ordered.ci_high)
        reporter.warn(
            f"{critic.id} is not known to be better than chance: it puts {share} {what} in order. What it prefers may "
            "be noise; more preferences, or another learning rate, make a better critic."
        )


def check_settings(artifact: Artifact, settings: CriticSettings) -> None:
    """Check that a critic accepts these settings of its reference, and that its mean can run over these tokens.

    Raises:
        UsageError: it has a regression head and no reference, never reads the training-time information, or judges by
            protocol upstream.
    """
    variant = TrainedMeta.of(artifact).variant
    if variant == "regression" and settings.service:
        what = f"{artifact.id} has a regression head, which a service does not have."
        raise UsageError(what, where="--local-engine tinker", fix="omit it")
    reference_options = [name for name in ("reference", "reference_context") if getattr(settings, name)]
    if variant == "regression" and reference_options:
        what = f"{artifact.id} has a regression head, which is measured against no reference."
        raise UsageError(what, where=option(reference_options[0]), fix=f"omit {option(reference_options[0])}")
    if variant == "no-info" and settings.reference_context is not None:
        what = f"{artifact.id} and its reference read the dialogue alone: it is a critic of the variant no-info."
        where = option("reference_context", settings.reference_context)
        raise UsageError(what, where=where, fix="omit --reference-context")
    if settings.turn_tokens not in (None, used_turn_tokens(artifact, settings)):
        what = f"{artifact.id} has a regression head, and no log-ratios to average."
        if variant != "regression":
            what = "In the protocol upstream the mean of the log-ratios runs over all tokens of a turn."
        raise UsageError(what, where=option("turn_tokens", settings.turn_tokens), fix="omit --turn-tokens")


def load_untrained(name: str, settings: CriticSettings) -> Critic:
    """Load the model that a critic would start from as a judge: its reference is the same model without the
    training-time information."""
    from sweet.learn.critic import AdvantageCritic
    from sweet.llm.pretrained import load_tokenizer

    tokenizer = load_tokenizer(name)
    model = settings.load(name, tokenizer)
    how = _reader_settings(settings, name) | {"turn_tokens": settings.turn_tokens or CRITIC_TURN_TOKENS}
    return AdvantageCritic(model, model, tokenizer, reference_context="dialogue", **how)


def load_solution_logprob(name: str, settings: CriticSettings) -> SolutionLogprob:
    """Load the model whose likelihood of the solution the judge `lookahead` reads."""
    from sweet.learn.solution_logprob import SolutionLogprob
    from sweet.llm.pretrained import load_tokenizer

    tokenizer = load_tokenizer(name)
    return SolutionLogprob(settings.load(name, tokenizer), tokenizer, **_reader_settings(settings, name))


def _reader_settings(settings: CriticSettings, name: str) -> dict[str, Any]:
    """Return the arguments of a critic that depend on the device and the model."""
    from sweet.hf import resolve_device
    from sweet.learn.batches import GPU_TOKENS
    from sweet.llm.pretrained import context_length, load_config

    on_gpu = resolve_device(settings.device).type == "cuda"
    return {
        "max_length": settings.max_length or context_length(load_config(name)),
        "budget": settings.batch_tokens or (GPU_TOKENS if on_gpu else CPU_TOKENS),
        "share": settings.packing == "tree",
    }


def warn_dropped_turns(dropped: int, max_length: int | None, reporter: Reporter) -> None:
    """Warn of early turns that the critic did not read."""
    if dropped:
        reporter.warn(f"{dropped} early turns were omitted to fit --max-length {max_length}.")
