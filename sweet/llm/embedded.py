"""The embedded engine as a chat client: a model in this process, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sweet.device import Device
from sweet.llm.base import Alternatives, Completion, Reply, RequestFailed, Sampling
from sweet.llm.engine import EmbeddedEngine, Generated, Limits, Scored
from sweet.llm.images import ImageMessage
from sweet.llm.pretrained import load_model, load_tokenizer, model_path
from sweet.llm.template import ChatTemplate
from sweet.tasks.base import Message


class EmbeddedClient:
    """Implements `sweet.llm.base.ChatClient` with an engine in this process.

    Attributes:
        model: the name that was requested.
        context: the maximum number of tokens of prompt and reply together; None if the model does not define one.
    """

    limiter = None

    def __init__(self, model: str, engine: EmbeddedEngine, tokenizer: Any) -> None:
        self.model = model
        self.engine = engine
        self.tokenizer = tokenizer
        self.template = ChatTemplate(tokenizer)

    @classmethod
    def load(cls, model: str, *, device: Device = "auto", limits: Limits | None = None) -> EmbeddedClient:
        """Load `model` and start its engine.

        Args:
            model: `micro`, a directory or a hub id.

        Raises:
            UsageError: the model cannot be used.
        """
        tokenizer = load_tokenizer(model)
        network = load_model(model, device, tokenizer=tokenizer)
        engine = EmbeddedEngine(network, end_ids(network, tokenizer), name=model_path(model), limits=limits)
        return cls(model, engine, tokenizer)

    @property
    def context(self) -> int | None:
        return self.engine.context

    @property
    def alive(self) -> bool:
        """Whether the engine accepts requests."""
        return self.engine.alive

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Sample replies to chat messages; see `ChatClient.chat`."""
        if any(isinstance(message, ImageMessage) for message in messages):
            raise RequestFailed("The embedded engine runs text models and does not accept images.", where=self.model)
        try:
            ids = self.template.ids(messages)
        except ValueError as error:
            raise RequestFailed(f"The prompt cannot be rendered: {error}.", where=self.model) from error
        return await self.complete(ids, sampling)

    async def complete(self, prompt: Sequence[int], sampling: Sampling) -> Completion:
        """Sample continuations of a prompt of token ids. Raises the errors of `chat`."""
        generated = await asyncio.wrap_future(self.engine.submit(prompt, sampling))
        return Completion(
            replies=tuple(self._reply(sequence) for sequence in generated),
            prompt_tokens=len(prompt),
            completion_tokens=sum(len(sequence.ids) for sequence in generated),
            model=self.model,
            prompt_token_ids=tuple(prompt),
        )

    async def score(self, ids: Sequence[int]) -> Scored:
        """Log-probabilities of a text's ids. Raises the errors of `chat`."""
        return await asyncio.wrap_future(self.engine.score(ids))

    async def aclose(self) -> None:
        """Stop the engine and free its memory."""
        await asyncio.to_thread(self.engine.close)

    def _reply(self, sequence: Generated) -> Reply:
        body = sequence.ids[:-1] if sequence.ids[-1] in self.engine.ends else sequence.ids
        return Reply(
            self.decode(body), sequence.finish_reason, sequence.ids, sequence.logprobs, self._alternatives(sequence)
        )

    def _alternatives(self, sequence: Generated) -> tuple[Alternatives, ...] | None:
        if not any(sequence.top_logprobs):
            return None
        texts = {token: self.decode([token], skip_special=False) for top in sequence.top_logprobs for token, _ in top}
        texts |= {token: self.decode([token], skip_special=False) for token in sequence.ids}
        pairs = zip(sequence.ids, sequence.top_logprobs, strict=True)
        return tuple(Alternatives(texts[token], tuple((texts[other], p) for other, p in top)) for token, top in pairs)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of token ids."""
        text: str = self.tokenizer.decode(
            list(ids), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
        )
        return text


def end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """All ids that end a reply: those of the generation configuration, the model and the tokenizer."""
    ends: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config.get_text_config(), tokenizer):
        found = getattr(source, "eos_token_id", None)
        ends.update(found if isinstance(found, list | tuple) else [] if found is None else [found])
    return frozenset(ends)
