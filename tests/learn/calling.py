"""Agents that call tools: templates that behave as those of Qwen, Llama 3, Mistral and gpt-oss, with tiny models.

The texts of the templates are our own. What they share with their models is how tools, calls and results are written:
Qwen's writes calls beside the text, each in tags; Llama's one call in the place of the text, and results as JSON;
Mistral's a list after a special token, with ids of nine characters, and since the eleventh version each call after one;
gpt-oss's a message in a channel, which ends with another token than a reply does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sweet.tasks.base import Tool, ToolCall
from sweet.tasks.trajectory import Trajectory, Turn, shared_prompts
from tests.learn.builders import REQUEST, SPECIAL, build_model, build_task, build_tokenizer

LOOKUP = Tool(
    name="lookup",
    description="Find a record.",
    parameters={"type": "object", "properties": {"key": {"type": "string"}, "most": {"type": "integer"}}},
)

_MISTRAL = (
    "{{- '<s>' -}}{%- if tools -%}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' -}}{%- endif -%}"
    "{%- for m in messages -%}{%- if m.role in ['user', 'system'] -%}{{- '[INST]' + m.content + '[/INST]' -}}"
    "{%- elif m.role == 'tool' -%}"
    '{{- \'[TOOL_RESULTS]{"content": \' + (m.content | tojson) + \', "call_id": "\' + m.tool_call_id '
    "+ '\"}[/TOOL_RESULTS]' -}}"
    "{%- elif m.tool_calls -%}{%- for c in m.tool_calls -%}{%- if c.id | length != 9 -%}"
    "{{- raise_exception('ids have nine characters') -}}{%- endif -%}{%- endfor -%}"
    "CALLS{{- '</s>' -}}{%- else -%}{{- m.content + '</s>' -}}{%- endif -%}{%- endfor -%}"
)

CALLING = {
    "qwen": (
        "{%- if tools -%}{{- '<|im_start|>system\\nTools:\\n' -}}{%- for t in tools -%}{{- t | tojson + '\\n' -}}"
        "{%- endfor -%}{{- 'Write <tool_call>\\n{\"name\": …}\\n</tool_call><|im_end|>\\n' -}}"
        "{%- endif -%}{%- for m in messages -%}"
        "{%- if m.role == 'tool' -%}"
        "{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' -}}"
        "{%- else -%}{{- '<|im_start|>' + m.role + '\\n' + m.content -}}{%- for c in m.tool_calls or [] -%}"
        "{%- if m.content or not loop.first -%}{{- '\\n' -}}{%- endif -%}"
        '{{- \'<tool_call>\\n{"name": "\' + c.function.name + \'", "arguments": \' -}}'
        "{{- c.function.arguments if c.function.arguments is string else c.function.arguments | tojson -}}"
        "{{- '}\\n</tool_call>' -}}{%- endfor -%}{{- '<|im_end|>\\n' -}}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
    ),
    "llama3": (
        "{{- '<|begin_of_text|>' -}}{%- if tools -%}"
        "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' + (tools | tojson) + '<|eot_id|>' -}}{%- endif -%}"
        "{%- for m in messages -%}{%- if m.role == 'tool' -%}"
        "{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + (m.content | tojson) + '<|eot_id|>' -}}"
        "{%- else -%}{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' -}}"
        "{%- if m.tool_calls -%}{%- if m.tool_calls | length != 1 -%}{{- raise_exception('one call at once') -}}"
        "{%- endif -%}{%- set c = m.tool_calls[0].function -%}"
        "{{- '{\"name\": \"' + c.name + '\", \"parameters\": ' + (c.arguments | tojson) + '}' -}}"
        "{%- else -%}{{- m.content | trim -}}{%- endif -%}{{- '<|eot_id|>' -}}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}{%- endif -%}"
    ),
    "mistral": _MISTRAL.replace(
        "CALLS",
        "{{- '[TOOL_CALLS] [' -}}{%- for c in m.tool_calls -%}{{- '{\"name\": \"' + c.function.name "
        '+ \'", "arguments": \' + (c.function.arguments | tojson) + \', "id": "\' + c.id + \'"}\' -}}'
        "{%- if not loop.last -%}{{- ', ' -}}{%- endif -%}{%- endfor -%}{{- ']' -}}",
    ),
    "mistral11": _MISTRAL.replace(
        "CALLS",
        "{{- m.content -}}{%- for c in m.tool_calls -%}"
        "{{- '[TOOL_CALLS]' + c.function.name + '[ARGS]' + (c.function.arguments | tojson) -}}{%- endfor -%}",
    ),
    "gpt-oss": (
        "{{- '<|start|>system<|message|>You think.<|end|>' -}}{%- if tools -%}"
        "{{- '<|start|>developer<|message|>' + (tools | tojson) + '<|end|>' -}}{%- endif -%}"
        "{%- for m in messages -%}{%- set is_last = loop.last and not add_generation_prompt -%}"
        "{%- if m.role in ['user', 'system'] -%}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' -}}"
        "{%- elif m.role == 'tool' -%}"
        "{{- '<|start|>functions.' + m.name + ' to=assistant<|channel|>commentary<|message|>' + (m.content | tojson) "
        "+ '<|end|>' -}}"
        "{%- elif m.tool_calls -%}{%- if m.content and m.thinking -%}{{- raise_exception('both') -}}{%- endif -%}"
        "{%- if m.content or m.thinking -%}{{- '<|start|>assistant<|channel|>analysis<|message|>' "
        "+ (m.content or m.thinking) + '<|end|>' -}}{%- endif -%}{%- set c = m.tool_calls[0].function -%}"
        "{{- '<|start|>assistant to=functions.' + c.name + '<|channel|>commentary json<|message|>' "
        "+ (c.arguments | tojson) + '<|call|>' -}}"
        "{%- else -%}{%- if is_last and m.thinking -%}"
        "{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' -}}{%- endif -%}"
        "{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + ('<|return|>' if is_last else '<|end|>') -}}"
        "{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|start|>assistant' -}}{%- endif -%}"
    ),
}

ENDS = {"qwen": "<|im_end|>", "llama3": "<|eot_id|>", "mistral": "</s>", "mistral11": "</s>", "gpt-oss": "<|return|>"}
SEVERAL = ("qwen", "mistral", "mistral11")
"""The families that make several calls at once."""

_ONE = {
    "qwen": '<tool_call>\n{{"name": "{0}", "arguments": {1}}}\n</tool_call>',
    "llama3": '{{"name": "{0}", "parameters": {1}}}',
    "mistral": '{{"name": "{0}", "arguments": {1}, "id": "{2}"}}',
    "mistral11": "[TOOL_CALLS]{0}[ARGS]{1}",
    "gpt-oss": " to=functions.{0}<|channel|>commentary json<|message|>{1}",
}
_MORE = ["<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"]
_MORE += ["[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"]
_MORE += ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>", "<|python_tag|>"]


def calling_tokenizer(family: str) -> Any:
    """A tokenizer with the template of a family, its end of a reply and its tags."""
    tokenizer = build_tokenizer(CALLING[family], special=[*SPECIAL, *_MORE], size=520)
    tokenizer.add_tokens(["<tool_call>", "</tool_call>", "<think>", "</think>"])
    tokenizer.eos_token = ENDS[family]
    return tokenizer


def calling_model(tokenizer: Any, seed: int = 0) -> Any:
    """A random model that ends its replies and its calls as the template does."""
    model = build_model(len(tokenizer), seed, tied=False)
    ends = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|call|>")]
    model.config.eos_token_id = model.generation_config.eos_token_id = ends
    return model


def written(family: str, text: str, calls: Sequence[ToolCall] = ()) -> str:
    """What the models of a family write for a text with calls, without the end."""
    made = [_ONE[family].format(call.name, call.arguments, call.id) for call in calls]
    if not calls:
        return f"<|channel|>final<|message|>{text}" if family == "gpt-oss" else text
    if family == "mistral":
        return f"[TOOL_CALLS] [{', '.join(made)}]"
    return "\n".join([text, *made] if text else made) if family == "qwen" else text + "".join(made)


def end_of(family: str, calls: Sequence[ToolCall] = ()) -> str:
    return "<|call|>" if calls and family == "gpt-oss" else ENDS[family]


def render(tokenizer: Any, dialogue: Sequence[Turn], **how: Any) -> str:
    """The prompt of the next turn after these, as a server renders it."""
    rows: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for turn in dialogue:
        row: dict[str, Any] = {"role": turn.role, "content": turn.content}
        if turn.tool_calls:
            row["tool_calls"] = [call.row() for call in turn.tool_calls]
            for call in row["tool_calls"]:
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
                names[call["id"]] = call["function"]["name"]
        if turn.tool_call_id:
            row |= {"tool_call_id": turn.tool_call_id, "name": names[turn.tool_call_id]}
        rows.append(row)
    how = {"add_generation_prompt": True, "tools": [LOOKUP.row()]} | how
    return str(tokenizer.apply_chat_template(rows, tokenize=False, **how))


def play(tokenizer: Any, family: str, *, recorded: bool = True, name: str = "t1") -> Trajectory:
    """A dialogue whose agent calls a tool twice (at once, where the family does), asks, calls again and answers.

    Args:
        recorded: keep the ids of prompts and replies. Those of calls are split into other tokens than the tokenizer
            would give, and the JSON has other white space than the template writes.
    """

    def call(number: int) -> ToolCall:
        arguments = f'{{"key":"{name} {number}",  "most": {number}}}' if recorded else json.dumps({"key": name})
        return ToolCall(id=f"call{number:05d}", name="lookup", arguments=arguments)

    first = [call(1), call(2)] if family in SEVERAL else [call(1)]
    beside = "I look it up." if family in ("qwen", "mistral11") else ""
    plan: list[tuple[str, list[ToolCall]]] = [
        (beside, first),
        ("What is the rate per hour?", []),
        ("", [call(3)]),
        ("I WANT TO ANSWER: def fee(hours): return hours * 5", []),
    ]
    history = [Turn(role="user", content=REQUEST)]
    prompts: dict[int, tuple[int, ...]] = {}
    for text, calls in plan:
        fields: dict[str, Any] = {"finish_reason": "tool_calls" if calls else "stop", "tool_calls": calls or None}
        if recorded:
            pieces = [written(family, text, calls), end_of(family, calls)]
            if calls:  # in two pieces, as a tokenizer would not cut it
                middle = pieces[0].index("lookup") + 3
                pieces = [pieces[0][:middle], pieces[0][middle:], pieces[1]]
            ids = [i for piece in pieces for i in tokenizer(piece, add_special_tokens=False)["input_ids"]]
            prompts[len(history)] = tuple(tokenizer(render(tokenizer, history), add_special_tokens=False)["input_ids"])
            fields["token_ids"] = tuple(ids)
        history.append(Turn(role="assistant", content=text, output=text, **fields))
        history += [Turn(role="tool", content=f'Rate "{one.id}":\n5 per hour', tool_call_id=one.id) for one in calls]
        if not calls and len(history) < 8:
            history.append(Turn(role="user", content="It is in the record."))
    return Trajectory(
        id=name,
        task=build_task("task-1"),
        dialogue_history=shared_prompts(history, prompts),
        agent_system="",
        tools=(LOOKUP,),
    )
