"""A model at a service of the Tinker interface as the engine of a chat client: it samples ids after ids.

Everything else (the template, thoughts, calls of tools, where a reply ends) is that of a model in this process
(`sweet.llm.embedded`). A request waits in a thread, because the client of the service repeats it while the service is
away. New weights are those that a training of the service has: the sampler is exchanged for one of a snapshot, and
requests that have begun end with the old one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

from sweet.errors import SweetError
from sweet.llm.base import ContextOverflow, RequestFailed, Sampling
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.engine import Generated, ThoughtLimit
from sweet.llm.pretrained import context_length, load_tokenizer, meta_model
from sweet.llm.template import reply_ends
from sweet.llm.thoughts import ALL_MARKS, Marks
from sweet.llm.tinker import Service, answer_of, import_client, service_address

MOST_REQUESTS = 256
"""Requests under way at most."""


class ServiceEngine:
    """Implements `sweet.llm.embedded.ReplyEngine`.

    Args:
        training: returns the client of the service's training, whose weights sample.
        name: of the model.
        tokenizer: of the model.

    Raises:
        UsageError, ServerError: see `answer_of`.
    """

    def __init__(self, training: Callable[[], Any], name: str, tokenizer: Any) -> None:
        shapes = meta_model(name)
        self.name, self.context, self.ends = name, context_length(shapes.config), reply_ends(shapes, tokenizer)
        self.alive = True
        self._training, self._types = training, import_client().types
        self._threads = ThreadPoolExecutor(MOST_REQUESTS, "service")
        self._sampler = 0, self._snapshot()

    def _snapshot(self) -> Any:
        return answer_of("a sampler", self._training().save_weights_and_get_sampling_client)

    def submit(
        self, prompt: Sequence[int], sampling: Sampling, thought: ThoughtLimit | None = None
    ) -> Future[list[Generated]]:
        """Request replies; see `EmbeddedEngine.submit`."""
        if thought is not None:
            what = "The service does not bound thoughts."
            raise RequestFailed(what, where="--max-thought-tokens", fix="omit it, or bound the reply: --max-tokens")
        limit = min(sampling.max_tokens, (self.context or len(prompt) + sampling.max_tokens) - len(prompt))
        if limit < 1:
            what = f"The prompt has {len(prompt)} tokens; the model {self.name} accepts {self.context} with the reply."
            raise ContextOverflow(what, where=self.name)
        params = self._types.SamplingParams(
            max_tokens=limit,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=None if sampling.seed is None else sampling.seed % 2**31,
            stop=sorted(self.ends),
        )
        return self._threads.submit(self._sampled, list(prompt), sampling.n, params)

    def _sampled(self, prompt: list[int], n: int, params: Any) -> list[Generated]:
        version, sampler = self._sampler
        encoded = self._types.ModelInput.from_ints(prompt)
        try:
            answer = answer_of("replies", lambda: sampler.sample(prompt=encoded, num_samples=n, sampling_params=params))
        except SweetError as error:
            if type(error) is not SweetError:
                raise
            raise RequestFailed(error.what, where=self.name) from error  # the service refuses this request
        batch = [self._generated(sequence, params.max_tokens, version) for sequence in answer.sequences]
        if len(batch) != n:
            raise RequestFailed(f"The service wrote {len(batch)} replies in the place of {n}.", where=service_address())
        return batch

    def _generated(self, sequence: Any, limit: int, version: int) -> Generated:
        ids, logprobs = tuple(map(int, sequence.tokens)), tuple(map(float, sequence.logprobs or ()))
        ended = bool(ids) and ids[-1] in self.ends
        if not ids or len(ids) != len(logprobs) or len(ids) > limit or not (ended or len(ids) == limit):
            what = "A reply of the service lacks log-probabilities, or the id that ends it."
            raise RequestFailed(what, where=service_address())
        return Generated(ids, logprobs, "stop" if ended else "length", version=version)

    def update(self, weights: Mapping[str, Any], version: int) -> Future[None]:
        """Sample from now on with the weights that the training has; see `EmbeddedEngine.update`."""

        def exchange() -> None:
            self._sampler = version, self._snapshot()

        return self._threads.submit(exchange)

    def close(self) -> None:
        """Drop what waits."""
        self.alive = False
        self._threads.shutdown(wait=False, cancel_futures=True)


async def open_at_service(
    model: str, marks: Sequence[Marks] = ALL_MARKS, training: Callable[[], Any] | None = None
) -> EmbeddedClient:
    """Open a model that the service has, or an adapter that it trained.

    Args:
        marks: those that a thought may have.
        training: returns the client of the training whose weights sample; default: one that takes no step.

    Raises:
        UsageError, ServerError: see `answer_of`.
    """
    training = training or cache(lambda: Service(model).training())
    tokenizer = load_tokenizer(model)
    engine = await asyncio.to_thread(ServiceEngine, training, model, tokenizer)
    return EmbeddedClient(model, engine, tokenizer, marks)
