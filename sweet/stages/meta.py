"""The meta of artifacts in the manifest (`Artifact.meta`), one record for each kind.

The stage that makes an artifact writes its record. All other modules read it with `of`, which accepts the meta of other
versions: a key that is missing or has another type is None.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sweet.llm.base import Effort
from sweet.render.page import RenderSettings
from sweet.render.window import Window, recorded_settings
from sweet.stages.record import Flat, Meta
from sweet.tasks.base import HumanSees, ProtocolName, ReferenceContext, TurnTokens
from sweet.tasks.trajectory import Thoughts


class JudgedMeta(Meta):
    """Of what a judge has scored; all null where there was none."""

    judge: str | None = None
    """What judged: critic, llm, oracle, random, untrained, or the name of a Python function."""
    critic: str | None = None
    """Id of the critic that judged."""
    judge_model: str | None = None
    """The language model that judged."""
    judge_prompt: str | None = None
    """Digest of its prompt."""
    informed: bool | None = None
    """Whether the judge sees the training-time information."""
    reference: str | None = None
    """The model that judged untrained."""
    reference_context: ReferenceContext | None = None
    """What the critic's reference read: hidden, the training-time information and the dialogue, or dialogue; null
    where the critic has no reference, or does not read that information either."""
    turn_tokens: TurnTokens | None = None
    """The tokens of a turn over which the mean of the critic's log-ratios ran; null for a regression head."""


class RolloutsMeta(JudgedMeta):
    """Of dialogues."""

    task: str | None = None
    """Kind of task."""
    tasks: str | None = None
    """Dataset: its name, or the file that the tasks or the dialogues came from."""
    split: str | None = None
    """Split of the dataset that was played: those of a file without splits are all of this one."""
    holdout: float | None = None
    """Share of the file's tasks that were held out for testing; null where none was."""
    holdout_validation: float | None = None
    """The same for validation."""
    tasks_digest: str | None = None
    """Digest of the tasks that were played, as 16 hex digits."""
    agent: str | None = None
    """The agent's model as it was named then; `scripted` or `imported` if there was none."""
    sim: str | None = None
    """The simulated human, in the same way; the names of all where there were several."""
    humans: list[str] | None = None
    """The names of the humans, where there were several or one with a persona: each dialogue names its own."""
    personas_digest: str | None = None
    """Digest of the texts of their personas."""
    humans_by: Literal["tasks", "samples"] | None = None
    """How they were spread: tasks, one human of all dialogues of a task, or samples, one after the other."""
    human: HumanSees | None = None
    """What the human knew the tasks by: their code, or spec, their specifications."""
    samples: int | None = None
    """Dialogues of each task."""
    max_turns: int | None = None
    """Maximum number of the agent's turns."""
    protocol: ProtocolName | None = None
    """paper, or upstream."""
    window: Window | None = None
    """Window in which pages were rendered, WIDTHxHEIGHT (html)."""
    pictures: str | None = None
    """What was shown for images: placeholder, or photo@ and a digest of the photograph (html)."""
    agent_system: str | None = None
    """The agent's system prompt, where it is not the packaged one."""
    prompts_digest: str | None = None
    """Digest of the prompts that were given instead of the packaged ones."""
    best_of: int | None = None
    """Replies that were sampled at each turn, of which the judge chose one; null where one was sampled."""
    effort: Effort | None = None
    """How much the agent was asked to think; null where it was not."""
    max_thought_tokens: int | None = None
    """Tokens after which its thoughts were ended; null where they were not."""
    thoughts: Thoughts | None = None
    """keep, where the agent read its earlier thoughts in the history; else drop."""

    @property
    def rendering(self) -> RenderSettings:
        """How the pages of the dialogues were rendered."""
        return recorded_settings(self.window, self.pictures)


class ScoresMeta(Meta):
    """Of scores."""

    scoring: Annotated[
        dict[str, object],
        Flat(
            {
                "scorer": "name of the scorer: rewards under different names are never compared",
                "tolerance": "relative difference of floats taken for equal (code)",
                "absolute_tolerance": "absolute difference of floats taken for equal (code)",
                "sandbox": "jail that ran the code (code)",
                "similarity": "what compared screenshots (html)",
                "window": "window in which pages were rendered, WIDTHxHEIGHT (html)",
                "pictures": "what was shown for images, placeholder or photo@ and a digest of the photograph (html)",
            }
        ),
    ] = Field(default_factory=dict)
    """The meta of the kind's scorer: everything that decides the rewards."""
    rollouts: str | None = None
    """Id of the dialogues."""

    @property
    def scorer(self) -> str | None:
        """Name of the scorer."""
        name = self.scoring.get("scorer")
        return None if name is None else str(name)


class PreferencesMeta(Meta):
    """Of preferences between dialogues."""

    rollouts: str | None = None
    """Id of the dialogues."""
    margin: float | None = None
    """Least difference of the rewards of a preference."""
    scorer: str | None = None
    """Name of the scorer of the rewards."""


class TrainedMeta(Meta):
    """Of a trained model, a critic or an actor."""

    base: str | None = None
    """The model that the training started from, as it was named then."""
    variant: Literal["advantage", "regression", "no-info"] | None = None
    """Of a critic: advantages from log-ratios, a regression head, or log-ratios without the training-time
    information."""
    algorithm: str | None = None
    """Of an actor: the credit rule of its training."""
    rule_option: list[str] | None = None
    """The options of the credit rule, where any were given."""
    agent_system: str | None = None
    """Of an actor: the agent's system prompt in what it learned from, where it is not the packaged one."""
    protocol: ProtocolName | None = None
    """paper, or upstream."""
    target: Literal["preference", "dialogue", "binary", "real"] | None = None
    """Of a regression head: what it learned. dialogue: preferences between whole dialogues, protocol upstream's."""
    normalize: Literal["turn", "trajectory", "none"] | None = None
    """Of another critic: over what log-ratios are averaged."""
    turn_tokens: TurnTokens | None = None
    """The tokens of a thinking agent's turns that were supervised: both, reply or separate."""
    lr: float | None = None
    """Peak learning rate."""
    nll: float | None = None
    """Weight of the likelihood term."""
    epochs: int | None = None
    """Passes over the data."""
    batch: int | None = None
    """Examples of a step."""
    beta: float | None = None
    """Weight of the log-ratios."""
    lora: int | None = None
    """Rank of the LoRA adapter that was trained; null where the whole model was."""
    lora_alpha: int | None = None
    """Weight of the adapter, over its rank."""
    lora_output: Literal["merged", "adapter"] | None = None
    """merged: a model like any other. adapter: peft's folder."""


class CandidatesMeta(JudgedMeta):
    """Of ranked candidates."""

    agent: str | None = None
    """The model that was sampled, as it was named then."""
    replies: str | None = None
    """Id of the candidates whose replies were judged again; null where replies were sampled."""
    protocol: ProtocolName | None = None
    """ProtocolName that the critic judged by: paper, or upstream."""
    sim: str | None = None
    """The simulated human that the judge lookahead asked."""


class PairsMeta(Meta):
    """Of pairs of replies."""

    candidates: str | None = None
    """Id of the candidates."""
    strategy: str | None = None
    """How pairs were chosen: random-halves or best-worst."""
