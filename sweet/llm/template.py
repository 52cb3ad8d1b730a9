"""Renders chat messages to the ids that a model is prompted with.

Thoughts in the history (`Message.thought`) are rendered as the template does it: from the field `reasoning_content`,
or, if it has none but leaves the text of a message as it is, between `<think>` marks in the text. A template that
removes earlier thoughts in any case is refused where they are to be kept. How much the model is asked to think is
passed by the variables that templates read: `enable_thinking`, `thinking`, `reasoning_effort`.

Tools are passed in the variable `tools`. How calls of them are written, and what reads them (`sweet.llm.call_formats`),
is found by rendering some (`CallForm`).

Rendering and tokenising are separate steps (the template writes the special tokens, so the tokenizer must not add any).
If a template refuses the system role, the system text is prepended to the first user message. A template that omits
system messages is used as is, as every server does: its model was trained without them. A template that reads texts
only as parts of a message's content (`{"type": "text", …}`) gets parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary

from sweet.errors import UsageError
from sweet.llm.base import ContextOverflow, Effort
from sweet.llm.call_formats import FORMATS, ReadCalls, declared_calls
from sweet.llm.thoughts import ALL_MARKS, CHANNELS, TAGS, Marks, marks_of, opened_by
from sweet.tasks.base import Message, Tool, ToolCall, chat_rows
from sweet.tasks.tools import read_arguments

MOST_CHARACTERS = 64
"""Characters for each token of the context beyond which a prompt is not tokenised."""
PROBE = "Zyxwv"
"""A text that does not occur in data: one plain word, so that no template trims or escapes it."""
PROBE_2 = "Qponm"
"""Another one."""
PROBE_3 = "Ltrws"
"""A third one."""
_ARGUMENTS = json.dumps({PROBE_2: PROBE_2})
_PRESERVING = {"preserve_thinking": True, "clear_thinking": False}
"""Variables by which templates keep earlier thoughts that they drop by default."""


def effort_variables(effort: Effort | None) -> dict[str, Any]:
    """Return the variables by which a template learns how much its model shall think; see `Sampling.effort`."""
    if effort is None:
        return {}
    thinks = effort != "none"
    level = {"reasoning_effort": effort} if thinks else {}
    return {"enable_thinking": thinks, "thinking": thinks, **level}


def inline(thought: str, content: str) -> str:
    """Return a message's text with its thought before it, between marks."""
    return f"{TAGS.opening}\n{thought}\n{TAGS.closing}\n\n{content}"


@dataclass(frozen=True)
class CallForm:
    """How a template has calls of tools written.

    Attributes:
        as_text: whether it reads arguments as text alone, not as an object.
        short: whether the ids of calls must have nine letters and digits (Mistral).
        read: reads what it writes; None if nothing known does.
    """

    as_text: bool
    short: bool
    read: ReadCalls | None = None

    def rows(self, messages: Iterable[Message]) -> list[dict[str, Any]]:
        """Return messages as the template reads them, without thoughts. Arguments that are no JSON object are passed as
        they were written."""
        rows, names = chat_rows(messages), dict[str, str]()
        for row in rows:
            for call in row.get("tool_calls", ()):
                function, name = call["function"], call["id"]
                names[name], call["id"] = function["name"], self._id(name)
                with suppress(ValueError):
                    arguments = read_arguments(function["arguments"])
                    function["arguments"] = function["arguments"] if self.as_text else arguments
            if "tool_call_id" in row:
                row |= {"name": names.get(row["tool_call_id"], ""), "tool_call_id": self._id(row["tool_call_id"])}
        return rows

    def _id(self, name: str) -> str:
        return "".join(filter(str.isalnum, name))[-9:].rjust(9, "0") if self.short else name


def _tool(name: str) -> Tool:
    return Tool(name=name, parameters={"type": "object", "properties": {PROBE_2: {"type": "string"}}})


def _is_read(read: ReadCalls, written: str, number: int) -> bool:
    """Return whether a reader finds so many calls of `PROBE` in what a template has written for them."""
    calls = read(written, True)[1]
    with suppress(ValueError):
        return [(call.name, json.loads(call.arguments)) for call in calls] == [(PROBE, {PROBE_2: PROBE_2})] * number
    return False


def tool_variables(tools: Sequence[Tool]) -> dict[str, Any]:
    """Return the variables by which a template learns of tools."""
    return {"tools": [tool.row() for tool in tools]} if tools else {}


def render_chat(
    tokenizer: Any,
    rows: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any] | None = None,
    *,
    generate: bool = True,
) -> str:
    """Render messages by a tokenizer's chat template, with their texts as parts if it reads no others.

    Args:
        variables: of the template.
        generate: append the generation prompt.

    Raises:
        jinja2.TemplateError: the template refuses the messages.
        UsageError: it does not write the text of a message.
    """
    if tokenizer not in _READS_PARTS:
        _READS_PARTS[tokenizer] = _reads_parts(tokenizer)
    return _rendered(tokenizer, rows, variables or {}, generate, as_parts=_READS_PARTS[tokenizer])


def around_reply(render: Callable[..., str], reply: str) -> tuple[str, str, str]:
    """Return what a template renders before the text of a reply, the text, and what it renders after it: up to the end,
    or to the text of the next message where that is white space, because the role of the next message ends a reply, or
    nothing does. The last two are empty if it does not render the text, a word that occurs nowhere else.
    """
    user, assistant = {"role": "user", "content": "b"}, {"role": "assistant", "content": reply}
    before, rendered, after = render(user, assistant).partition(reply)
    if rendered and not after.strip():
        after = render(user, assistant, {"role": "user", "content": PROBE_2}).partition(reply)[2].partition(PROBE_2)[0]
    return before, rendered, after


def end_of_turn(tokenizer: Any, after: str) -> int | None:
    """Return the id that ends a reply: the first, in what a template renders after it, that stands for no text. White
    space before it, as Llama 2's template writes it, is not what its model writes. Without one it is the end of a text;
    None if the tokenizer has none.

    Args:
        after: see `around_reply`.
    """
    ids = tokenizer(after, add_special_tokens=False)["input_ids"]
    marks = {*getattr(tokenizer, "all_special_ids", ()), *getattr(tokenizer, "added_tokens_decoder", ())}
    end_id = next((number for number in ids if number in marks), getattr(tokenizer, "eos_token_id", None))
    return None if end_id is None else int(end_id)


def reply_ends(model: Any, tokenizer: Any, *configs: Any) -> frozenset[int]:
    """Return all ids that end a reply: those of the generation configuration, the model, the tokenizer and other
    configurations, and the one with which the chat template ends a turn, which is what a training teaches, unless a
    thought before the reply ends with it, too."""
    from jinja2.exceptions import TemplateError

    ends: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config.get_text_config(), tokenizer, *configs):
        ids = getattr(source, "eos_token_id", None)
        ends.update(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])
    if getattr(tokenizer, "chat_template", None):
        with suppress(TemplateError, UsageError):  # of a template that refuses a reply nothing is learned
            before, rendered, after = around_reply(lambda *rows: render_chat(tokenizer, rows, generate=False), PROBE)
            end_id = end_of_turn(tokenizer, after)
            thought = "".join(marks.forced for marks in ALL_MARKS if before.endswith(marks.closing))
            of_thought = tokenizer(thought, add_special_tokens=False)["input_ids"]
            ends.update([end_id] if rendered and end_id is not None and end_id not in of_thought else [])
    return frozenset(ends)


def special_tokens(tokenizer: Any) -> list[str]:
    """Return the texts of a tokenizer's special tokens, which are no part of what is said."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    return [str(token.content) for token in added if token.special]


_READS_PARTS: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
"""Whether the template of a tokenizer reads texts only as parts of a message's content."""


def _rendered(
    tokenizer: Any, rows: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], generate: bool, *, as_parts: bool
) -> str:
    if as_parts:
        rows = [{**row, "content": [{"type": "text", "text": row["content"]}]} for row in rows]
    render = tokenizer.apply_chat_template
    return str(render(list(rows), tokenize=False, add_generation_prompt=generate, **variables))


def _reads_parts(tokenizer: Any) -> bool:
    from jinja2.exceptions import TemplateError

    is_refused = True  # in both forms: for the order of roles, perhaps, as rendering will say
    for as_parts in (False, True):
        with suppress(TemplateError, TypeError):
            if PROBE in _rendered(tokenizer, [{"role": "user", "content": PROBE}], {}, True, as_parts=as_parts):
                return as_parts
            is_refused = False
    if is_refused:
        return False
    raise UsageError(
        "The chat template does not write the text of a message into the prompt.",
        where=str(getattr(tokenizer, "name_or_path", "") or "the tokenizer"),
        fix="use a model whose chat template renders user messages",
    )


class ChatTemplate:
    """The chat template of one tokenizer, with the generation prompt appended."""

    def __init__(self, tokenizer: Any, marks: Sequence[Marks] = ALL_MARKS) -> None:
        self.tokenizer, self.marks = tokenizer, marks
        self._fold_system = self._refuses_system()
        self._opened: dict[Effort | None, Marks | bool] = {}
        self._thought_form: Literal["field", "inline", "none"] | None = None

    def text(self, messages: Sequence[Message], effort: Effort | None = None, tools: Sequence[Tool] = ()) -> str:
        """The rendered prompt, with the tools that are offered.

        Raises:
            ValueError: the template refuses these messages, for example the order of their roles.
            UsageError: a message has a thought, and the template removes thoughts from the history.
        """
        from jinja2.exceptions import TemplateError

        variables = effort_variables(effort) | tool_variables(tools)
        rows = self.rows(messages)
        if any(m.thought for m in messages):
            rows = [self._with_thought(row, m.thought) for row, m in zip(rows, messages, strict=True)]
            variables |= _PRESERVING
        if self._fold_system and len(rows) > 1 and rows[0]["role"] == "system":
            system = rows.pop(0)["content"]
            rows[0] = {"role": rows[0]["role"], "content": f"{system}\n\n{rows[0]['content']}"}
        try:
            return self._render(rows, variables)
        except TemplateError as error:
            raise ValueError(f"the chat template refuses these messages: {error}") from error

    def ids(
        self,
        messages: Sequence[Message],
        effort: Effort | None = None,
        context: int | None = None,
        tools: Sequence[Tool] = (),
    ) -> list[int]:
        """The rendered prompt as token ids. Raises the errors of `text`, and ContextOverflow for a text that is not
        tokenised because it is far too long for `context` tokens."""
        text = self.text(messages, effort, tools)
        if context is not None and len(text) > context * MOST_CHARACTERS:
            raise ContextOverflow(f"The prompt has {len(text)} characters; the model accepts {context} tokens.")
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def opened(self, effort: Effort | None = None) -> Marks | bool:
        """The marks of a thought whose opening one ends every prompt; False if none does."""
        if effort not in self._opened:
            prompt = self._render([{"role": "user", "content": PROBE}], effort_variables(effort))
            self._opened[effort] = opened_by(prompt, self.marks)
        return self._opened[effort]

    def reads(self, effort: Effort) -> bool:
        """Whether the template tells this effort from others: thinking from none, or the degrees of it."""
        row = [{"role": "user", "content": PROBE}]
        texts = {name: self._render(row, effort_variables(name)) for name in get_args(Effort)}
        degrees = {texts[name] for name in texts if name != "none"}
        return texts["none"] not in degrees if effort == "none" else len(degrees) > 1

    def rows(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Return messages as the template reads them, without thoughts."""
        if not any(message.tool_calls for message in messages):
            return chat_rows(messages)
        return (self.call_form or CallForm(as_text=False, short=False)).rows(messages)

    def check_tools(self) -> None:
        """Check that tools can be offered to the model.

        Raises:
            UsageError: its template shows no tools, or no calls and results; or nothing reads its calls.
        """
        if not self._shows_tools:
            what = "has no place for tools"
        elif self.call_form is None:
            what = "writes no calls of tools, or not their results, into the history"
        elif self.call_form.read is None:
            what = "writes calls of tools in a format that is not known"
        else:
            return
        raise UsageError(
            f"The model cannot use the tools of these tasks: its chat template {what}.",
            where=str(getattr(self.tokenizer, "name_or_path", "") or "the tokenizer"),
            fix="a model whose template writes tools, calls and results as those of Qwen, Llama 3, Mistral or gpt-oss, "
            "or whose tokenizer has a response_template; or a server that reads its calls: --agent-url URL",
        )

    @cached_property
    def _shows_tools(self) -> bool:
        return PROBE in self._render([{"role": "user", "content": "b"}], tool_variables([_tool(PROBE)]))

    @cached_property
    def call_form(self) -> CallForm | None:
        """How calls are written; None if the template does not write them, their arguments and their results."""
        is_declared = getattr(self.tokenizer, "response_template", None) is not None
        readers: list[ReadCalls] = [partial(declared_calls, self.tokenizer)] if is_declared else []
        first = None
        for as_text, short in product((False, True), repeat=2):
            form = CallForm(as_text, short)
            if (one_call := self._written_calls(form, 1)) is None:
                continue
            first = first or form
            for read in (*readers, *(known.read for known in FORMATS)):
                if _is_read(read, one_call, 1):
                    two_calls = self._written_calls(form, 2)
                    several = two_calls is not None and _is_read(read, two_calls, 2)
                    return CallForm(as_text, short, read if several else partial(read, most=1))
        return first

    def _written_calls(self, form: CallForm, number: int) -> str | None:
        """Return what the template writes for so many calls of `PROBE` and their results; None if it refuses them, or
        leaves something out."""
        from jinja2.exceptions import TemplateError

        calls = tuple(ToolCall(id=f"call-of-tool-{n}", name=PROBE, arguments=_ARGUMENTS) for n in range(number))
        messages = [Message(role="user", content="b"), Message(role="assistant", content="", tool_calls=calls)]
        messages += [Message(role="tool", content=PROBE_3, tool_call_id=call.id) for call in calls]
        variables = tool_variables([_tool("a")])
        try:
            rows = form.rows(messages)
            whole = render_chat(self.tokenizer, rows, variables, generate=False)
            prompts = [
                render_chat(self.tokenizer, rows[:1], variables, generate=prompted) for prompted in (True, False)
            ]
        except (TemplateError, TypeError):
            return None
        written = whole[next((len(prompt) for prompt in prompts if whole.startswith(prompt)), 0) :]
        return written if all(word in written for word in (PROBE, PROBE_2, PROBE_3)) else None

    def _with_thought(self, row: dict[str, Any], thought: str | None) -> dict[str, Any]:
        if thought is None:
            return row
        if self._thought_form is None:
            self._thought_form = self._find_thought_form()
        if self._thought_form == "none":
            raise UsageError(
                "The chat template of the model removes thoughts from the history, so they cannot be kept in it.",
                where="--thoughts keep",
                fix="leave --thoughts out",
            )
        if self._thought_form == "inline":
            return {**row, "content": inline(thought, row["content"])}
        return {**row, "reasoning_content": thought}

    def _find_thought_form(self) -> Literal["field", "inline", "none"]:
        """How the template renders the thought of a turn that the human has replied to."""
        assistant = {"role": "assistant", "content": "a"}
        user = {"role": "user", "content": "b"}
        if PROBE in self._render([user, {**assistant, "reasoning_content": PROBE}, user], _PRESERVING):
            return "field"
        if marks_of(self.tokenizer) is CHANNELS:  # the text of a message is the channel final
            return "none"
        marked = {**assistant, "content": inline(PROBE, "a")}
        return "inline" if PROBE in self._render([user, marked, user], _PRESERVING) else "none"

    def _render(self, rows: list[dict[str, str]], variables: dict[str, Any] | None = None) -> str:
        return render_chat(self.tokenizer, rows, variables)

    def _refuses_system(self) -> bool:
        from jinja2.exceptions import TemplateError

        try:
            self._render([{"role": "system", "content": "x"}, {"role": "user", "content": "x"}])
        except TemplateError:
            return True
        return False
