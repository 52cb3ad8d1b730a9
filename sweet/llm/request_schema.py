"""The request bodies that the embedded server accepts, with bounds.

Fields that would change the reply but are not supported are refused unless they have a neutral value. Unknown fields
are refused too, so that no request is answered differently from what it asks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sweet.llm.base import Effort, Sampling
from sweet.tasks.base import Message

MAX_REPLIES = 1024
"""Maximum number of replies to one request, over all its prompts."""

_IGNORED = {"user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier", "request_id"}
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "stream": (False,),
    "stream_options": (),
    "stop": ([],),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "suffix": ("",),
    "best_of": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
}
"""Unsupported fields, with the values that have no effect; null never has one."""


def _check_unicode(text: str) -> str:
    text.encode()  # raises a ValueError for a lone surrogate, which JSON can contain
    return text


Text = Annotated[str, AfterValidator(_check_unicode)]
Tokens = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: str
    temperature: float | None = Field(default=1.0, ge=0, le=100)
    top_p: float | None = Field(default=1.0, gt=0, le=1)
    n: Annotated[int, Field(ge=1, le=MAX_REPLIES)] | None = 1
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64)
    return_token_ids: bool | None = False

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for name, allowed in _UNSUPPORTED.items():
            if data.get(name) is not None and data[name] not in allowed:
                raise ValueError(f"{name} is not supported")
        return {key: value for key, value in data.items() if key not in _UNSUPPORTED and key not in _IGNORED}

    def sampling(self, max_tokens: int) -> Sampling:
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=self.top_p or 1.0,
            max_tokens=max_tokens,
            n=self.n or 1,
            seed=self.seed,
        )


def _text_of(content: Any) -> Any:
    """The text of a message whose content is given in parts."""
    if not isinstance(content, list):
        return content
    if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        raise ValueError("only parts of type text are supported: this model does not accept images")
    return "".join(str(part.get("text", "")) for part in content)


def _role_of(role: Any) -> Any:
    return "system" if role == "developer" else role


class ChatMessage(BaseModel):
    """One message; `developer` is the newer name of `system`."""

    model_config = ConfigDict(extra="forbid")

    role: Annotated[Literal["system", "user", "assistant"], BeforeValidator(_role_of)]
    content: Annotated[Text, BeforeValidator(_text_of)]
    name: str | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None

    @model_validator(mode="after")
    def _check_thought(self) -> ChatMessage:
        if self.role != "assistant" and (self.reasoning_content or self.reasoning):
            raise ValueError("only messages of the assistant have a thought")
        return self


class TemplateVariables(BaseModel):
    """The variables of a chat template that may be set."""

    model_config = ConfigDict(extra="forbid")

    enable_thinking: bool | None = None
    thinking: bool | None = None

    @property
    def thinks(self) -> bool | None:
        return self.thinking if self.enable_thinking is None else self.enable_thinking


class ChatBody(_Body):
    """POST /v1/chat/completions. `chat_template_kwargs` and `thinking_token_budget` are vLLM's."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool | None = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None
    chat_template_kwargs: TemplateVariables | None = None
    thinking_token_budget: int | None = Field(default=None, ge=1)

    @property
    def effort(self) -> Effort | None:
        thinks = self.chat_template_kwargs.thinks if self.chat_template_kwargs else None
        if thinks is False or self.reasoning_effort == "none":
            return "none"
        if self.reasoning_effort == "minimal":
            return "low"
        return self.reasoning_effort or ("medium" if thinks else None)

    @model_validator(mode="after")
    def _check_top_logprobs(self) -> ChatBody:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs requires logprobs")
        return self

    def sampling(self, max_tokens: int) -> Sampling:
        return replace(
            super().sampling(max_tokens),
            top_logprobs=self.top_logprobs or 0,
            max_thought_tokens=self.thinking_token_budget,
            effort=self.effort,
        )

    def chat(self) -> list[Message]:
        return [
            Message(role=m.role, content=m.content, thought=m.reasoning_content or m.reasoning or None)
            for m in self.messages
        ]


class CompletionBody(_Body):
    """POST /v1/completions. Prompts are texts or token ids; `echo` with `max_tokens` 0 scores a text."""

    prompt: Text | Tokens | Annotated[list[Text], Field(min_length=1)] | Annotated[list[Tokens], Field(min_length=1)]
    max_tokens: int | None = Field(default=16, ge=0)
    echo: bool | None = False
    logprobs: int | None = Field(default=None, ge=0, le=1)

    @model_validator(mode="after")
    def _check_request(self) -> CompletionBody:
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens 0 requires echo")
        if len(self.prompts()) * (self.n or 1) > MAX_REPLIES:
            raise ValueError(f"at most {MAX_REPLIES} replies can be requested at once")
        return self

    def prompts(self) -> list[str | list[int]]:
        """One entry for each prompt."""
        if isinstance(self.prompt, str) or isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)
