"""The body of a request that the embedded server accepts, with bounds.

Fields that would change the reply but are not supported are refused unless they have a neutral value. Unknown fields
are refused too, so that no request is answered differently from what it asks.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sweet.llm.base import Effort, Sampling
from sweet.tasks.base import Message

MAX_REPLIES = 1024
"""Maximum number of replies to one request."""
DEFAULT_MAX_TOKENS = 1024
"""Tokens of a reply if the request does not set a limit; the context limits it too."""

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


class ChatBody(BaseModel):
    """POST /v1/chat/completions. `return_token_ids`, `chat_template_kwargs` and `thinking_token_budget` are vLLM's. A
    field that is null is one that is not given."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    temperature: float = Field(default=1.0, ge=0, le=100)
    top_p: float = Field(default=1.0, gt=0, le=1)
    n: int = Field(default=1, ge=1, le=MAX_REPLIES)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64)
    return_token_ids: bool = False
    max_tokens: int = Field(default=DEFAULT_MAX_TOKENS, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=20)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None
    chat_template_kwargs: TemplateVariables | None = None
    thinking_token_budget: int | None = Field(default=None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        given = {name: value for name, value in data.items() if value is not None and name not in _IGNORED}
        for name in given.keys() & _UNSUPPORTED.keys():
            if given.pop(name) not in _UNSUPPORTED[name]:
                raise ValueError(f"{name} is not supported")
        return given

    @model_validator(mode="after")
    def _check_top_logprobs(self) -> ChatBody:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs requires logprobs")
        return self

    @property
    def effort(self) -> Effort | None:
        thinks = self.chat_template_kwargs.thinks if self.chat_template_kwargs else None
        if thinks is False or self.reasoning_effort == "none":
            return "none"
        if self.reasoning_effort == "minimal":
            return "low"
        return self.reasoning_effort or ("medium" if thinks else None)

    def sampling(self) -> Sampling:
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            n=self.n,
            seed=self.seed,
            top_logprobs=self.top_logprobs,
            max_thought_tokens=self.thinking_token_budget,
            effort=self.effort,
        )

    def chat(self) -> list[Message]:
        return [
            Message(role=m.role, content=m.content, thought=m.reasoning_content or m.reasoning or None)
            for m in self.messages
        ]
