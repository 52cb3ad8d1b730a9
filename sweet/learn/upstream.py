"""What the published code reads differently from the paper to train a critic and rank by it (protocol `upstream`).

Training (`UpstreamEncoder`): a side of a preference is one text, c, the rendered prompt of the last turn and its raw
output. So of earlier turns the part that the human saw is supervised, as it stands in that prompt. The mask begins
right after the role's header, so that the line breaks between header and reply are supervised too, and the last turn
ends with a space and the tokenizer's end-of-text token.

Ranking (`ranked_spans`, `scoring_prefix`): the critic's mean runs over the whole header and the reply without its end
token, and the tokenizer puts a second begin-of-text token before c.

What is not imitated is listed in docs/results.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sweet.learn.replies import ReplyIds
from sweet.learn.sequences import TokenSequence
from sweet.learn.tokens import ChatEncoder, TurnTarget
from sweet.llm.base import Reply
from sweet.llm.template import PROBE
from sweet.tasks.trajectory import Trajectory


class UpstreamEncoder(ChatEncoder):
    """Encodes the dialogues that a critic is trained on.

    Raises:
        UsageError: as for `ChatEncoder`.
    """

    version = "upstream-2"

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        [prompt] = self._tokenize([self._template([{"role": "user", "content": "b"}], generate=True)])
        self._space = 0
        """Ids between the role's header and a reply: the white space at the end of the generation prompt."""
        while self._space < len(prompt) and str(tokenizer.decode([prompt[-1 - self._space]])).isspace():
            self._space += 1

    def _dialogue_targets(self, trajectory: Trajectory, offset: int) -> list[TurnTarget]:
        history, (*earlier, last) = trajectory.dialogue_history, trajectory.agent_turns
        replies = self.encode_replies([Reply(history[i].content, tool_calls=history[i].tool_calls) for i in earlier])
        [encoded] = self.encode_replies(
            [Reply(f"{history[last].said} ", finish_reason="length", thought=history[last].thought)]
        )
        end = self.tokenizer.eos_token_id
        replies.append(replace(encoded, ids=[*encoded.ids, self.end_of_turn if end is None else int(end)]))
        turns = trajectory.agent_turns
        return [TurnTarget(i + offset, [reply], i, [[]]) for i, reply in zip(turns, replies, strict=True)]

    def _in_history(self, targets: list[TurnTarget], prompts: Sequence[list[int]]) -> list[TurnTarget]:
        """The turns with the ids that they have in the prompt of the next turn, where that prompt repeats theirs."""
        in_history = []
        for number, (target, prompt) in enumerate(zip(targets, prompts, strict=True)):
            following = prompts[number + 1] if number + 1 < len(prompts) else []
            if following[: len(prompt)] == prompt and self.end_of_turn in following[len(prompt) :]:
                stop = following.index(self.end_of_turn, len(prompt)) + 1
                target = replace(target, replies=[ReplyIds(following[len(prompt) : stop])])
            in_history.append(target)
        return in_history

    def _finalize(self, sequence: TokenSequence) -> TokenSequence:
        return replace(
            sequence, spans=tuple(replace(span, start=max(1, span.start - self._space)) for span in sequence.spans)
        )


def ranked_spans(encoder: ChatEncoder, sequence: TokenSequence) -> TokenSequence:
    """The same ids with the spans that the published ranking averages over: from the header of the turn to the end of
    its text. A reply that was cut off has no end token, so nothing is omitted of it."""
    spans = []
    for span in sequence.spans:
        start = max(1, span.start - encoder.header)
        stop = span.stop - (sequence.ids[span.stop - 1] in encoder.ends)
        spans.append(replace(span, start=start, stop=max(start + 1, stop)))
    return replace(sequence, spans=tuple(spans))


def scoring_prefix(tokenizer: Any) -> tuple[int, ...]:
    """The ids that the tokenizer itself puts before a text. The published scoring server lets it do so although the
    rendered prompt has its begin-of-text token already; the training does not."""
    probe_ids: list[int] = tokenizer(PROBE, add_special_tokens=False)["input_ids"]
    full_ids: list[int] = tokenizer(PROBE)["input_ids"]
    starts = (n for n in range(len(full_ids)) if full_ids[n : n + len(probe_ids)] == probe_ids)
    return tuple(full_ids[: next(starts, 0)])
