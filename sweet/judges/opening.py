"""A judge as the options of a stage choose it: the models it needs, what is recorded of it, and how it is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sweet.judges.base import Judge
from sweet.judges.control import CreditScorer, OracleJudge, RandomJudge
from sweet.judges.llm import JudgePrompt, LLMJudge
from sweet.judges.on_ray import LoadCritic, open_ray_judge
from sweet.judges.options import ReplyJudgeConfig
from sweet.llm.base import ChatClient
from sweet.llm.scripted import has_model
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import recorded_model
from sweet.stages.base import Reporter
from sweet.stages.critics import used_reference_context, used_turn_tokens
from sweet.stages.meta import TrainedMeta
from sweet.tasks.base import CRITIC_TURN_TOKENS, ProtocolName


@dataclass(frozen=True)
class ChosenJudge:
    """A judge that is not opened yet.

    Attributes:
        name: critic, llm, oracle, random, untrained or lookahead.
        config: the options of the stage.
        critic: the artifact that judges; None for another judge.
        protocol: that the critic judges by; None for its own.
        start: the model that judges `untrained` or `lookahead`; None for another judge.
        load: loads the critic or the untrained model; None for another judge.
        human: the simulated human that `lookahead` asks, with its addresses; None for another judge.
    """

    name: str
    config: ReplyJudgeConfig
    critic: Artifact | None = None
    protocol: ProtocolName | None = None
    start: str | None = None
    load: LoadCritic | None = None
    human: tuple[str, list[str]] | None = None

    @property
    def computes(self) -> bool:
        """Whether a model of the judge is computed by this program and not asked through a client."""
        return self.load is not None or self.human is not None

    @property
    def title(self) -> str:
        """Who judges, for messages."""
        return self.critic.id if self.critic else self.config.judge_model or f"the judge {self.name}"

    @property
    def informed(self) -> bool:
        """Whether it sees the training-time information."""
        if self.critic is not None:
            return TrainedMeta.of(self.critic).variant != "no-info"
        if self.name == "llm":
            return JudgePrompt.of(self.config.judge_prompt).informed
        return self.name != "random"

    @property
    def asked(self) -> list[tuple[str, list[str]]]:
        """The language model that is asked for scores, or that plays the human of `lookahead`, with its addresses;
        empty for another judge."""
        if self.human is not None:
            return [self.human] if has_model(self.human[0]) else []
        return [] if self.config.judge_model is None else [(self.config.judge_model, self.config.judge_url)]

    def readers(self, run: Run | None) -> list[str]:
        """Return the models that read each reply: the critic, and its reference where it has one.

        Args:
            run: of the critic; may be None for another judge.
        """
        if self.critic is None or run is None:
            return [] if self.start is None else [self.start] * (1 if self.human else 2)
        path = str(run.file(self.critic))
        if TrainedMeta.of(self.critic).variant == "regression":
            return [path]
        return [path, self.config.reference or recorded_model(run, self.critic, "base")]

    def meta(self) -> dict[str, object]:
        """Return what the meta of an artifact records of the judge (`sweet.stages.meta.JudgedMeta`)."""
        recorded: dict[str, object] = {"judge": self.name}
        if self.critic is not None:
            recorded["critic"] = self.critic.id
            context = used_reference_context(self.critic, self.protocol, self.config.reference_context)
            recorded |= {} if context is None else {"reference_context": context}
            counted = used_turn_tokens(self.critic, self.protocol, self.config.turn_tokens)
            recorded |= {} if counted is None else {"turn_tokens": counted}
        if self.name == "llm":
            prompt = JudgePrompt.of(self.config.judge_prompt)
            recorded |= {"judge_model": self.config.judge_model, "judge_prompt": prompt.digest}
        if self.human is not None:
            recorded |= {"reference": self.start, "sim": self.human[0]}
        elif self.start is not None:
            recorded |= {"reference": self.start, "turn_tokens": self.config.turn_tokens or CRITIC_TURN_TOKENS}
        return recorded

    @contextmanager
    def open(
        self, scorer: CreditScorer, reporter: Reporter, *, ray: str | None = None, by_place: bool = False
    ) -> Iterator[Judge | None]:
        """Open the judge for the duration of the block; None for a language model, see `asking`, and for `lookahead`.

        Args:
            scorer: for the oracle.
            ray: the Ray cluster on whose nodes a critic judges; None for this machine.
            by_place: for `random`, see `RandomJudge`.
        """
        if self.load is not None and ray is not None:
            with open_ray_judge(ray, self.load, self.config.device, reporter.say) as judge:
                yield judge
        elif self.load is not None:
            yield self.load(reporter)
        elif self.name == "oracle":
            yield OracleJudge(scorer)
        else:
            yield RandomJudge(self.config.seed, by_place=by_place) if self.name == "random" else None

    def asking(self, client: ChatClient) -> LLMJudge:
        """Return the judge `llm`, which asks through `client`."""
        config = self.config
        prompt = JudgePrompt.of(config.judge_prompt)
        return LLMJudge(client, prompt, concurrency=config.concurrency, max_tokens=config.judge_tokens)
