"""The ids of an agent's replies: what it thought, what it said, and the end of its turn, for any chat template.

How a template has a reply written is found by rendering probes (`ReplyForm`): what stands before a reply, around a
thought, and after the reply. A thought is written where the template reads it from one of the usual fields; if the
generation prompt opens a thought, the reply goes on from there; and where the template writes no thought, it is inline
text between `<think>` tags.

Calls of tools are written as the template writes them of a message, up to the token that ends it.

The ids that were recorded during sampling are used if they decode to the thought, to what was said and to the calls.
Otherwise the texts are tokenised as the model would have written them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sweet.errors import UsageError
from sweet.llm.base import Effort, Reply
from sweet.llm.call_formats import ReadCalls
from sweet.llm.template import (
    PROBE,
    PROBE_2,
    ChatTemplate,
    around_reply,
    effort_variables,
    end_of_turn,
    render_chat,
    special_tokens,
)
from sweet.llm.thoughts import count_leading, separate_calls
from sweet.tasks.base import Message, ToolCall
from sweet.tasks.tools import read_arguments

FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Where templates look for the thought of a message."""

INLINE = ("<think>\n", "\n</think>\n\n")
"""What stands around a thought if the template does not write any."""


@dataclass(frozen=True)
class ReplyIds:
    """The ids of a reply, with its end.

    Attributes:
        thought: number of the first ids that are the thought with the marks around it; 0 if there is no thought, or
            nothing else.
        recorded: whether the ids are those that were sampled.
    """

    ids: list[int]
    thought: int = 0
    recorded: bool = False


@dataclass(frozen=True)
class ReplyForm:
    """What a model writes after the generation prompt, as a chat template has it.

    Attributes:
        prompt: a rendered generation prompt.
        lead: before a reply without a thought.
        opening, closing: before a thought, and between it and the reply.
        tail: after the reply, up to the text of the next message; has the token that ends the turn.
        inline: whether the template writes no thought, so that `opening` and `closing` are the usual ones.
    """

    prompt: str
    lead: str
    opening: str
    closing: str
    tail: str
    inline: bool = False

    def text(self, reply: Reply) -> str:
        """What the model wrote, without the end of its turn."""
        return self.thought(reply) + reply.text

    def thought(self, reply: Reply) -> str:
        """The part of `text` before what was said."""
        if not _has_thought(reply):
            return self.lead
        cut_off = not reply.text.strip() and not reply.ended
        return f"{self.opening}{reply.thought}{'' if cut_off else self.closing}"

    def wrote(self, marked: str, reply: Reply) -> bool:
        """Whether the model wrote `marked` before what it said: a thought with the marks of this template, or what
        stands before a reply without one."""
        marked = marked.strip()
        if not _has_thought(reply):
            return marked in ("", self.lead.strip(), (self.opening + self.closing).strip())
        if self.inline:
            return True
        return marked.startswith(self.opening.strip()) and (
            not reply.text.strip() or marked.endswith(self.closing.strip())
        )


def find_form(tokenizer: Any, effort: Effort | None = None) -> ReplyForm:
    """Determine how the tokenizer's chat template has replies written.

    Args:
        effort: how much the model was asked to think. A generation prompt may open a thought, or end it at once.

    Raises:
        UsageError: replies cannot be located in what it renders.
    """
    variables = effort_variables(effort)

    def render(*messages: dict[str, str], generate: bool = False) -> str:
        return render_chat(tokenizer, messages, variables, generate=generate)

    request, answer = {"role": "user", "content": "b"}, {"role": "assistant", "content": PROBE}
    prompt = render(request, generate=True)
    before, probe, tail = around_reply(render, PROBE)
    opened = prompt.removeprefix(before) if prompt.startswith(before) else ""
    closing = _closing(opened)
    if before.startswith(prompt):
        lead = before[len(prompt) :]
    elif probe and (closing is not None or _is_closed(opened)):
        lead = closing or ""
    else:
        raise unmaskable(tokenizer, "a rendered reply does not begin with the generation prompt")
    if not probe:
        raise unmaskable(tokenizer, "a rendered reply does not contain the text of the reply")
    if not tail.strip():
        raise unmaskable(tokenizer, "nothing marks the end of a reply")
    head, thought_probe, rest = render(request, answer | dict.fromkeys(FIELDS, PROBE_2)).partition(PROBE_2)
    thought_closing, reply_probe, _ = rest.partition(PROBE)
    if thought_probe and reply_probe and head.startswith(prompt):
        return ReplyForm(prompt, lead, head[len(prompt) :], thought_closing, tail)
    if closing is not None:
        return ReplyForm(prompt, lead, "", closing, tail)
    return ReplyForm(prompt, lead, *INLINE, tail, inline=True)


def unmaskable(tokenizer: Any, why: str) -> UsageError:
    return UsageError(
        f"The chat template cannot be masked: {why}.",
        where=str(getattr(tokenizer, "name_or_path", "") or "the tokenizer"),
        fix="use a model whose template puts a reply directly after the generation prompt and ends it with a token",
    )


def _closing(opened: str) -> str | None:
    """What ends a thought that the generation prompt opens with a tag, in the form of its opening; None if it opens
    none."""
    tag = opened.strip()
    name = tag.removeprefix("<").removesuffix(">")
    if f"<{name}>" != tag or not name.isalpha():
        return None
    return f"\n</{name}>\n\n"


def _has_thought(reply: Reply) -> bool:
    """Whether there is anything in a reply's thought: marks around nothing count as a part of the reply."""
    return reply.thought is not None and bool(reply.thought.strip())


def _thought_length(reply: Reply, thought: int, size: int) -> int:
    """The number of first ids of a reply that are the thought: none if there is nothing in it, and none if it is all
    that there is, since then there is no reply to tell from it.

    Args:
        thought, size: ids of the thought with its marks, and of the reply without its end.
    """
    return thought if _has_thought(reply) and thought < size else 0


def _is_closed(opened: str) -> bool:
    """Whether a generation prompt ends with a thought that it has closed itself, so that the model does not think."""
    tag, ended = opened.strip(), opened.rstrip().rpartition("</")[2]
    return tag.startswith("<") and ended.endswith(">") and ended.removesuffix(">").isalpha()


def _comparable(call: ToolCall) -> tuple[str, object]:
    """What of a call is the same however its JSON is written."""
    with suppress(ValueError):
        return call.name, read_arguments(call.arguments)
    return call.name, call.arguments.strip()


class ReplyEncoder:
    """Encodes replies for one tokenizer.

    Attributes:
        form: how the chat template has replies written.
        end_of_turn: the id that ends a reply.
        ends: the ids that may end a recorded reply: `end_of_turn` and the tokenizer's special ids.

    Raises:
        UsageError: replies cannot be located in what the chat template renders.
    """

    def __init__(self, tokenizer: Any, effort: Effort | None = None, chat: ChatTemplate | None = None) -> None:
        self.tokenizer, self._variables = tokenizer, effort_variables(effort)
        self._chat = chat or ChatTemplate(tokenizer)
        self.form = find_form(tokenizer, effort)
        prompt, lead, tail = self.form.prompt, self.form.lead, self.form.tail
        texts = [prompt, lead + PROBE, lead + PROBE + tail, prompt + lead + PROBE, prompt + lead + PROBE + tail]
        prompt_ids, standalone, ended, joined, joined_ended = self._tokenize(texts)
        end = end_of_turn(tokenizer, tail)
        if end is None:
            raise unmaskable(tokenizer, "nothing marks the end of a reply")
        self.end_of_turn = end
        # SentencePiece adds a space before a text that is tokenised alone; inside the dialogue there is none.
        self._anchor, self._anchor_ids = "", 0
        if joined[: len(prompt_ids)] == prompt_ids and joined[len(prompt_ids) :] != standalone:
            self._anchor, self._anchor_ids = prompt, len(prompt_ids)
            standalone, ended = joined[len(prompt_ids) :], joined_ended[len(prompt_ids) :]
        if ended[: len(standalone)] != standalone:
            raise unmaskable(tokenizer, "the end of a reply is not a token of its own")
        special = {self.end_of_turn, *getattr(tokenizer, "all_special_ids", ())}
        self.ends: frozenset[int] = frozenset(special)
        marks = tokenizer.convert_tokens_to_ids(special_tokens(tokenizer))
        self._ends_of_calls = self.ends.union(marks)

    def encode(self, replies: Sequence[Reply]) -> list[ReplyIds]:
        """The ids of each reply, including its end-of-turn token (unless the reply was truncated); at least one."""
        rows = [self._recorded_ids(reply) for reply in replies]
        missing = [i for i, row in enumerate(rows) if row is None]
        if missing:
            reply_rows = self._tokenize([self._anchor + self._written_text(replies[i]) for i in missing])
            thought_rows = self._tokenize([self._anchor + self.form.thought(replies[i]) for i in missing])
            for i, reply_ids, thought_ids in zip(missing, reply_rows, thought_rows, strict=True):
                rows[i] = self._encode_text(replies[i], reply_ids[self._anchor_ids :], thought_ids[self._anchor_ids :])
        return [row or ReplyIds([self.end_of_turn]) for row in rows]

    def text(self, reply: Reply) -> str:
        """A reply as text, with the end of its turn, for engines with their own tokenisation."""
        recorded = self._recorded_ids(reply) if reply.thought is not None or reply.tool_calls else None
        if recorded is not None:
            return self._decode(recorded.ids, skip_special=False)
        end = str(self.tokenizer.convert_ids_to_tokens(self.end_of_turn))
        text = self._written_text(reply)
        has_end = reply.tool_calls and text.endswith((end, *special_tokens(self.tokenizer)))
        return text + (end if reply.ended and not has_end else "")

    def _written_text(self, reply: Reply) -> str:
        """What the model wrote: with calls up to the token that ends them, otherwise without the end of its turn."""
        if not reply.tool_calls:
            return self.form.text(reply)
        thought = dict.fromkeys(FIELDS, reply.thought) if _has_thought(reply) else {}
        rendered, prompt = self._render_with_calls(reply, reply.text, thought), self.form.prompt
        if rendered.startswith(prompt) and all(part in rendered for part in (reply.text.strip(), *thought.values())):
            return rendered.removeprefix(prompt)
        # The template leaves the text or the thought out, or begins the message in another way than its prompt.
        _, probe, calls = self._render_with_calls(reply, PROBE).partition(PROBE)
        if not probe:
            without_text = self._render_with_calls(reply, "")
            if not without_text.startswith(prompt):
                raise unmaskable(self.tokenizer, "a rendered call does not begin with the generation prompt")
            calls = without_text.removeprefix(prompt).removeprefix(self.form.lead)
        return self.form.text(reply) + calls

    def _render_with_calls(self, reply: Reply, text: str, fields: Mapping[str, Any] | None = None) -> str:
        """Return a request and the message of a reply with this text, rendered; empty if the template refuses it."""
        from jinja2.exceptions import TemplateError

        reply_message = Message(role="assistant", content=text, tool_calls=reply.tool_calls)
        request, reply_row = self._chat.rows([Message(role="user", content="b"), reply_message])
        rows = [request, {**reply_row, **(fields or {})}]
        with suppress(TemplateError, TypeError):
            return render_chat(self.tokenizer, rows, self._variables, generate=False).rstrip()
        return ""

    def _encode_text(self, reply: Reply, ids: list[int], thought: list[int]) -> ReplyIds | None:
        if not ids:
            return None
        end = [self.end_of_turn] if reply.ended and not self._ends_calls(reply, ids) else []
        # The last id of a thought that is tokenised alone may be another one before the text that follows it.
        pairs = enumerate(zip(ids, thought, strict=False))
        shared = next((n for n, (reply_id, thought_id) in pairs if reply_id != thought_id), min(len(ids), len(thought)))
        return ReplyIds([*ids, *end], _thought_length(reply, shared, len(ids)))

    def _recorded_ids(self, reply: Reply) -> ReplyIds | None:
        """The recorded ids with their end, if they are valid for this tokenizer and decode to the texts; otherwise
        None."""
        if not reply.token_ids:
            return None
        ids = list(reply.token_ids)
        if max(ids) >= len(self.tokenizer):
            return None
        body = ids[:-1] if ids[-1] in self.ends or self._ends_calls(reply, ids) else ids
        thought = self._thought_count_with_calls(reply, body) if reply.tool_calls else self._thought_count(reply, body)
        if thought is None:
            return None
        end = [self.end_of_turn] if len(body) == len(ids) and reply.ended else []
        return ReplyIds([*ids, *end], _thought_length(reply, thought, len(body)), recorded=True)

    def _ends_calls(self, reply: Reply, ids: list[int]) -> bool:
        return bool(reply.tool_calls) and ids[-1] in self._ends_of_calls

    def _thought_count_with_calls(self, reply: Reply, body: list[int]) -> int | None:
        """The number of first ids of a recorded reply with calls that are its thought; None if the ids are of others.
        Of calls in a format that is not known the names are looked for. A dialogue may record the first calls alone."""
        tool_calls, raw, form = reply.tool_calls or (), self._decode(body, skip_special=False), self._chat.call_form
        has_names = all(call.name in raw for call in tool_calls)
        read_calls: ReadCalls = (form and form.read) or (lambda text, _: (text, [*tool_calls] if has_names else []))
        _, calls, size = separate_calls(raw, read_calls, None)
        is_same = [*map(_comparable, calls[: len(tool_calls)])] == [*map(_comparable, tool_calls)]
        if not is_same or any(text.strip() not in raw for text in (reply.text, reply.thought or "")):
            return None
        if reply.thought_tokens is not None:
            return min(reply.thought_tokens, len(body))
        return count_leading(size, len(body), lambda count: self._decode(body[:count], skip_special=False))

    def _thought_count(self, reply: Reply, body: list[int]) -> int | None:
        """The number of first ids of a recorded reply that are its thought and the marks before what was said; None if
        the ids are of other texts."""
        text = reply.text.strip()
        if reply.thought is None and self._decode(body).strip() == text:
            return 0
        count = self._last_start(body, text) if reply.thought_tokens is None else min(reply.thought_tokens, len(body))
        thought = (reply.thought or "").strip()
        if self._decode(body[count:]).strip() != text or thought not in self._decode(body[:count]):
            return None
        return count if self.form.wrote(self._decode(body[:count], skip_special=False), reply) else None

    def _last_start(self, body: list[int], text: str) -> int:
        """The largest n for which the text of the ids from n on is at least as long as `text`."""
        low, high = 0, len(body)
        while low < high:
            middle = (low + high + 1) // 2
            if len(self._decode(body[middle:]).strip()) >= len(text):
                low = middle
            else:
                high = middle - 1
        return low

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        rows: list[list[int]] = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return rows

    def _decode(self, ids: list[int], *, skip_special: bool = True) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=skip_special, clean_up_tokenization_spaces=False))
