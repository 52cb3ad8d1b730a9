"""Separates what a model thought from what it said.

A model that thinks writes its thought before its reply, between marks: `<think>` and `</think>` (Qwen3, DeepSeek-R1 and
most others), the channels analysis and final of gpt-oss, or those of its family (`ALL_MARKS`). Chat templates may
write the opening mark as the end of the prompt, and then the reply has the closing one alone. A server with a reasoning
parser returns the thought in a field of its own (`sweet.llm.response_schema`); all other replies are separated here,
and nowhere else: those of the embedded engine, of servers without such a parser, and of imported dialogues.

The thought is the beginning of the reply up to its first closing mark. If there is an opening mark and no closing one,
because the tokens were spent or the model stopped, all of the reply is the thought and nothing is said. Where it is not
known whether the prompt ended with the opening mark, a closing mark without an opening one ends a thought too; but if
an opening mark stands before it within a line, both are words of the reply, such as code that searches for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweet.errors import UsageError
from sweet.hints import option
from sweet.llm.base import Reply
from sweet.llm.call_formats import FINAL, ReadCalls
from sweet.tasks.base import ToolCall
from sweet.tasks.trajectory import common_length


@dataclass(frozen=True)
class Marks:
    """What a model writes around a thought.

    Attributes:
        opening, closing: the marks.
        before_closing: what precedes the closing mark and belongs to it, if it is there.
        forced: what ends a thought that has used up its tokens.
        token: a token of tokenizers whose models think with these marks.
    """

    opening: str
    closing: str
    token: str
    forced: str
    before_closing: str = ""


TAGS = Marks("<think>", "</think>", "</think>", "\n</think>\n\n")
BRACKETS = Marks("[THINK]", "[/THINK]", "[/THINK]", "[/THINK]")
CHANNELS = Marks(
    "<|channel|>analysis<|message|>",
    FINAL,
    "<|channel|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
    "<|end|><|start|>assistant",
)


def _pair(opening: str, closing: str) -> Marks:
    return Marks(opening, closing, closing, closing)


ALL_MARKS = (
    TAGS,
    BRACKETS,
    CHANNELS,
    _pair("<seed:think>", "</seed:think>"),  # Seed-OSS
    _pair("<|channel>thought", "<channel|>"),  # Gemma
    _pair("<thinking>", "</thinking>"),
    _pair("<thought>", "</thought>"),  # Gemini, by its interface for OpenAI's clients
    _pair("<reasoning>", "</reasoning>"),
    _pair("<|START_THINKING|>", "<|END_THINKING|>"),  # Command
    _pair("<|begin_of_thought|>", "<|end_of_thought|>"),  # OpenThinker
    _pair("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    _pair("◁think▷", "◁/think▷"),  # Kimi
)
_LEAST_OF_MARK = 3
"""Characters of an opening mark by which one that was cut off is recognised."""
_ENDS = ("<|return|>", "<|end|>")
"""What ends a message in the format of gpt-oss, if the server returns special tokens."""


@dataclass(frozen=True)
class Parts:
    """The parts of a raw reply; joined in this order, they are the reply.

    Attributes:
        opening: the opening mark with the white space before it; empty if the prompt ended with it.
        thought: None if the reply has no thought; the other parts but `said` are empty then.
        closing: the closing mark; empty if the thought was not finished.
    """

    opening: str
    thought: str | None
    closing: str
    said: str

    @property
    def length(self) -> int:
        """The number of characters of the thought with its marks."""
        return len(self.opening) + len(self.thought or "") + len(self.closing)

    @property
    def spoken(self) -> str:
        """What was said, without the line breaks between it and the thought."""
        if self.thought is None:
            return self.said
        text = self.said.lstrip("\r\n")
        return next((text.removesuffix(end) for end in _ENDS if text.endswith(end)), text)


def given_marks(text: str | None) -> tuple[Marks, ...]:
    """Return the marks that a user names, before all that are known.

    Args:
        text: the opening and the closing mark, with white space between them; None for none of one's own.

    Raises:
        UsageError: it is not two marks.
    """
    if text is None:
        return ALL_MARKS
    words = text.split()
    if len(words) != 2 or words[0] == words[1]:
        what = "The marks around a thought are two: what opens it, and what closes it."
        raise UsageError(what, where=option("thought_marks", text), fix=option("thought_marks", "<think> </think>"))
    return (_pair(*words), *ALL_MARKS)


def separate(text: str, opened: Marks | bool | None = None, known: Sequence[Marks] = ALL_MARKS) -> Parts:
    """Separate a raw reply.

    Args:
        opened: the marks whose opening one ended the prompt; False if none did, None if that is not known.
        known: the marks that a thought may have.
    """
    if isinstance(opened, Marks):
        return _closed(text, 0, opened)
    lead = len(text) - len(text.lstrip())
    for marks in known:
        if text.startswith(marks.opening, lead):
            return _closed(text, lead + len(marks.opening), marks)
        if len(text) - lead >= _LEAST_OF_MARK and marks.opening.startswith(text[lead:]):
            return Parts(text, "", "", "")
    if text.startswith(CHANNELS.closing, lead):
        end = lead + len(CHANNELS.closing)
        return Parts("", text[:lead], text[lead:end], text[end:])
    if opened is None:
        for marks in known:
            if marks is CHANNELS:
                continue
            end = text.find(marks.closing)
            before = text.rfind(marks.opening, 0, max(end, 0))
            if end >= 0 and (before < 0 or not text[:before].rpartition("\n")[2].strip()):
                return _closed(text, 0, marks)
    return Parts("", None, "", text)


def _closed(text: str, start: int, marks: Marks) -> Parts:
    """Return the parts of a reply whose thought begins at `start`. Thoughts that follow one another are one."""
    end, after = -1, start
    while True:
        position = text.find(marks.closing, after)
        if position < 0:
            return Parts(text[:start], text[start:], "", "")
        end, after = position, position + len(marks.closing)
        rest = text[after:].lstrip()
        if not rest.startswith(marks.opening):
            break
        after = len(text) - len(rest) + len(marks.opening)
    before = marks.before_closing
    if before and text.endswith(before, start, end):
        end -= len(before)
    return Parts(text[:start], text[start:end], text[end:after], text[after:])


def count_leading(length: int, count: int, decode: Callable[[int], str]) -> int:
    """Return how many of the first tokens it takes to write the first `length` characters.

    Args:
        count: of all tokens.
        decode: returns the text of the first so many tokens.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(decode(middle)) >= length else (middle + 1, high)
    return low


def separate_ids(
    ids: Sequence[int],
    decode: Callable[[Sequence[int], bool], str],
    opened: Marks | bool | None,
    known: Sequence[Marks] = ALL_MARKS,
) -> tuple[Parts, int | None]:
    """Separate a reply by its ids, without the id that ended it.

    Args:
        decode: returns the text of ids, without special tokens if its second argument is True.
        opened, known: as for `separate`.

    Returns:
        The parts of the text with its special tokens, but `said` without them; and the number of the first ids that
        write the thought and its marks, None if there is none. A token that writes the end of the closing mark and the
        beginning of what is said is one of them.
    """
    parts = separate(decode(ids, False), opened, known)
    if parts.thought is None:
        return replace(parts, said=decode(ids, True)), None
    if not parts.closing:
        return parts, len(ids)
    size = count_leading(parts.length, len(ids), lambda count: decode(ids[:count], False))
    rest = decode(ids[:size], False)[parts.length :]
    return replace(parts, said=rest + decode(ids[size:], True)), size


def separate_calls(
    raw: str, read: ReadCalls, opened: Marks | bool | None, known: Sequence[Marks] = ALL_MARKS, *, ended: bool = True
) -> tuple[Parts, list[ToolCall], int]:
    """Separate a raw reply into thought, text and calls. What stands in a thought is no call.

    Args:
        raw: the reply with its special tokens.
        opened, known: as for `sweet.llm.thoughts.separate`.

    Returns:
        The parts, of which `said` has no calls; the calls; and the number of the first characters that are the thought
        with its marks.
    """
    parts = separate(raw, opened, known)
    is_open = parts.thought is not None and not parts.closing
    if is_open and parts.opening.strip() != CHANNELS.opening:
        return parts, [], len(raw)
    apart = parts.thought is not None and not is_open
    rest, calls = read(parts.said if apart else raw, ended)
    if apart:
        parts = replace(parts, said=rest)
    elif calls:
        parts = separate(rest, opened, known)
        text = parts.said.replace(CHANNELS.before_closing + CHANNELS.closing, "").replace(CHANNELS.closing, "")
        parts = replace(parts, said=text)
    thought = "" if parts.thought is None else parts.opening + parts.thought + parts.closing
    return parts, calls, common_length(thought, raw)


def without_thought(reply: Reply, opened: Marks | bool | None = None, known: Sequence[Marks] = ALL_MARKS) -> Reply:
    """Return the reply with its thought, if its text has one, apart from the text; arguments as for `separate`.

    The number of the thought's tokens is known only if the thought is all that there is.
    """
    parts = separate(reply.text, opened, known)
    if parts.thought is None:
        return reply
    thought = parts.thought.strip()
    if reply.thought:  # the server returned one in a field of its own, too
        thought = f"{reply.thought}\n{thought}".strip()
    tokens = None if reply.token_ids is None or parts.closing else len(reply.token_ids)
    return replace(reply, text=parts.spoken, thought=thought, thought_tokens=tokens)


def marks_of(tokenizer: Any, known: Sequence[Marks] = ALL_MARKS) -> Marks:
    """Return the marks with which the model of a tokenizer thinks, if it does: those of its own before the others."""
    if known[0] not in ALL_MARKS:
        return known[0]
    tokens = tokenizer.get_vocab()
    return next((marks for marks in reversed(known) if marks.token in tokens), TAGS)


def opened_by(prompt: str, known: Sequence[Marks] = ALL_MARKS) -> Marks | bool:
    """Return the marks whose opening one ends a prompt; False if none does."""
    end = prompt.rstrip()
    return next((marks for marks in known if end.endswith(marks.opening)), False)
