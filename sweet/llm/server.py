"""An OpenAI-compatible server for one chat client in this process.

    GET  /health, /v1/models
    POST /v1/chat/completions, /v1/responses (`sweet.llm.responses`)

The application has no queue: the engine batches waiting requests. The request of a client that disconnects is
cancelled, so that its rows leave the batch. A large request is parsed in a thread, so that others do not wait. A
streamed reply comes in one piece, as the events of a stream.

In addition to OpenAI's fields, vLLM's `return_token_ids` is supported, and a thought is returned as vLLM's reasoning
parsers do, as `reasoning_content` and `reasoning` of the message. With the token ids, which include those of the
thought, `thought_tokens` is the number of these. Tools are offered to models whose templates have a place for them;
whether the model calls one, and with what, is its own choice (`tool_choice` is `auto` or `none`; `strict` is accepted
and binds no sampling). Errors have OpenAI's format.

Fields that would change the reply but are not supported are refused unless they have a neutral value. Unknown fields
are refused too, so that no request is answered differently from what it asks.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.types import FailFast
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sweet.errors import SweetError, first_problem, place_and_problem
from sweet.llm.base import Alternatives, ChatClient, Completion, Effort, Reply, Sampling
from sweet.llm.call_formats import MOST_CALLS, read_calls
from sweet.llm.concurrency import off_loop
from sweet.llm.listening import HTTPError, refused
from sweet.llm.responses import ResponsesBody, response_events, response_of, supported
from sweet.tasks.base import Message, Tool, ToolCall
from sweet.tasks.tools import MOST_TOOLS

B = TypeVar("B", bound=BaseModel)

MAX_MESSAGES, MAX_CHARACTERS, MAX_FIELDS = 4096, 2 << 20, 64
"""Messages of a request, characters of each, and fields of an object."""
EVENTS = "text/event-stream"
LOWEST_LOGPROB = -9999.0
"""Sent instead of minus infinity, which JSON does not have."""
MAX_REPLIES = 1024
"""Maximum number of replies to one request."""
DEFAULT_MAX_TOKENS = 1024
"""Tokens of a reply if the request does not set a limit; the context limits it too."""

_THOUGHT_FIELDS = ("reasoning_content", "reasoning")
_IGNORED = {"user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier", "request_id"}
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "stop": ([],),
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


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_FIELDS:  # of which each unknown one would be an error
        raise HTTPError(400, f"An object of the request has {len(pairs)} fields; at most {MAX_FIELDS} are read.")
    return dict(pairs)


Text = Annotated[str, Field(max_length=MAX_CHARACTERS), AfterValidator(_check_unicode)]


def _text_of(content: Any) -> Any:
    """The text of a message whose content is given in parts."""
    if not isinstance(content, list):
        return content
    if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        raise ValueError("only parts of type text are supported: this model does not accept images")
    return "".join(str(part.get("text", "")) for part in content)


def _calls_of(raw: list[Any]) -> list[ToolCall]:
    calls = read_calls(raw)
    if not all(call.id and call.name for call in calls):
        raise ValueError("a call of a tool has an id, and a function with a name and arguments")
    return calls


class _Function(Tool):
    """A tool that is offered."""

    model_config = ConfigDict(extra="forbid")

    strict: bool | None = Field(default=None, exclude=True)


class _OfferedTool(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["function"]
    function: _Function


class ChatMessage(BaseModel):
    """One message; `developer` is the newer name of `system`."""

    model_config = ConfigDict(extra="forbid")

    role: Annotated[
        Literal["system", "user", "assistant", "tool"],
        BeforeValidator(lambda role: "system" if role == "developer" else role),
    ]
    content: Annotated[Text, BeforeValidator(_text_of)] | None = None
    name: str | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    tool_calls: Annotated[list[Any], Field(max_length=MOST_CALLS), AfterValidator(_calls_of)] | None = None
    tool_call_id: str | None = Field(default=None, max_length=256)

    @model_validator(mode="after")
    def _check_role(self) -> ChatMessage:
        if self.role != "assistant" and (self.reasoning_content or self.reasoning or self.tool_calls):
            raise ValueError("only messages of the assistant have a thought or calls of tools")
        if (self.role == "tool") != (self.tool_call_id is not None):
            raise ValueError("messages of the role tool, and no others, have a tool_call_id")
        if self.content is None and not self.tool_calls:
            raise ValueError("only a message with calls of tools may have no content")
        return self

    def message(self) -> Message:
        return Message(
            role=self.role,
            content=self.content or "",
            thought=self.reasoning_content or self.reasoning or None,
            tool_calls=tuple(self.tool_calls or ()) or None,
            tool_call_id=self.tool_call_id,
        )


class _StreamOptions(BaseModel):
    include_usage: bool = False


class ChatBody(BaseModel):
    """POST /v1/chat/completions. `return_token_ids`, `chat_template_kwargs` and `thinking_token_budget` are vLLM's. A
    field that is null is one that is not given."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: str
    messages: Annotated[list[ChatMessage], FailFast()] = Field(min_length=1, max_length=MAX_MESSAGES)
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
    chat_template_kwargs: dict[Literal["enable_thinking", "thinking"], bool | None] = Field(default_factory=dict)
    thinking_token_budget: int | None = Field(default=None, ge=1)
    tools: list[_OfferedTool] = Field(default_factory=list, max_length=MOST_TOOLS)
    tool_choice: Literal["none", "auto"] = "auto"
    parallel_tool_calls: Literal[True] = True
    stream: bool = False
    stream_options: _StreamOptions = _StreamOptions()

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, data: Any) -> Any:
        return supported(data, _IGNORED, _UNSUPPORTED)

    @model_validator(mode="after")
    def _check_top_logprobs(self) -> ChatBody:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs requires logprobs")
        return self

    @property
    def effort(self) -> Effort | None:
        kwargs = self.chat_template_kwargs
        thinks = kwargs.get("thinking") if kwargs.get("enable_thinking") is None else kwargs["enable_thinking"]
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
            tools=self.offered,
        )

    @property
    def offered(self) -> tuple[Tool, ...]:
        return tuple(tool.function for tool in self.tools) if self.tool_choice == "auto" else ()

    def chat(self) -> list[Message]:
        return [message.message() for message in self.messages]


class ChatApp:
    """The routes, over `client`."""

    def __init__(self, client: ChatClient) -> None:
        self.client = client
        self.created = int(time.time())
        self._token_texts: dict[int, str] = {}

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/health", self.health),
            Route("/v1/models", self.models),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/responses", self.responses, methods=["POST"]),
        ]

    async def health(self, request: Request) -> Response:
        if not getattr(self.client, "alive", True):
            raise HTTPError(503, "The engine has died.")
        return Response(status_code=200)

    async def models(self, request: Request) -> Response:
        model = {"id": self.client.model, "object": "model", "created": self.created, "owned_by": "sweet"}
        context = getattr(self.client, "context", None)
        if context is not None:
            model["max_model_len"] = context
        return JSONResponse({"object": "list", "data": [model]})

    async def chat(self, request: Request) -> Response:
        data = await request.body()
        body = await off_loop(len(data), lambda: self._checked(fields_of(data)))
        answer = await self._answer(request, body)
        if not body.stream:
            return JSONResponse(answer)
        return Response(_chat_events(answer, usage=body.stream_options.include_usage), media_type=EVENTS)

    async def responses(self, request: Request) -> Response:
        """Answer a request of the responses API; see `sweet.llm.responses`."""
        data, remembered = await request.body(), self.remembered(request)

        def parsed() -> tuple[ResponsesBody, list[dict[str, Any]], ChatBody]:
            body = _valid(ResponsesBody, fields_of(data))
            if (earlier := body.previous_response_id) is not None and earlier not in remembered:
                what = "No response of this id is known here: only those of the same session are."
                raise HTTPError(400, what, "previous_response_not_found", "previous_response_id")
            try:
                messages = [*remembered.get(earlier or "", ()), *body.messages()]
            except ValueError as error:
                raise HTTPError(400, f"{error}.", param="input") from error
            return body, messages, self._checked(body.chat(messages))

        body, messages, chat = await off_loop(len(data), parsed)
        answer = await self._answer(request, chat)
        response = response_of(body, answer)
        remembered[response["id"]] = [*messages, answer["choices"][0]["message"]]
        return Response(response_events(response), media_type=EVENTS) if body.stream else JSONResponse(response)

    def remembered(self, request: Request) -> dict[str, list[dict[str, Any]]]:
        """Return the messages up to each response that a request may go on from, by id, to which its own is added."""
        return {}

    async def _answer(self, request: Request, body: ChatBody) -> dict[str, Any]:
        """Return the chat completion of a request."""
        completion = await self.complete(request, body)
        answer: dict[str, Any] = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": completion.model,
            "choices": [self._choice(body, index, reply) for index, reply in enumerate(completion.replies)],
            "usage": _usage(completion),
        }
        if body.return_token_ids:
            answer["prompt_token_ids"] = completion.prompt_token_ids
        return answer

    async def complete(self, request: Request, body: ChatBody) -> Completion:
        """Sample the replies."""
        return await self.client.chat(body.chat(), body.sampling())

    def check(self, body: ChatBody) -> None:
        """Raise HTTPError for a request that is not one to this model."""
        if body.offered and not hasattr(self.client, "template"):
            raise HTTPError(400, "This model uses no tools.", param="tools")
        if body.model != self.client.model:
            raise HTTPError(404, f"The model is called {self.client.model!r} here.", "model_not_found", "model")

    def _choice(self, body: ChatBody, index: int, reply: Reply) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "message": _message(reply),
            "finish_reason": reply.finish_reason,
            "logprobs": self._logprobs(reply) if body.logprobs else None,
        }
        if body.return_token_ids:
            choice["token_ids"] = reply.token_ids
            if reply.thought_tokens is not None:
                choice["thought_tokens"] = reply.thought_tokens
        return choice

    def _logprobs(self, reply: Reply) -> dict[str, Any] | None:
        if reply.token_ids is None or reply.logprobs is None:
            return None
        content = []
        positions = reply.alternatives or (Alternatives("", ()),) * len(reply.token_ids)
        for token, logprob, position in zip(reply.token_ids, reply.logprobs, positions, strict=True):
            top = [_token(other, p) for other, p in position.top_logprobs]
            content.append(_token(self._token_text(token), logprob) | {"top_logprobs": top})
        return {"content": content}

    def _token_text(self, token: int) -> str:
        if token not in self._token_texts:
            self._token_texts[token] = self.client.decode([token], skip_special=False)  # type: ignore[attr-defined]
        return self._token_texts[token]

    def _checked(self, fields: Any) -> ChatBody:
        body = _valid(ChatBody, fields)
        self.check(body)
        return body


def _valid(model: type[B], fields: Any) -> B:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise HTTPError(400, place_and_problem(error, "the body"), param=first_problem(error)[0] or None) from error


def fields_of(data: bytes) -> Any:
    """Return the JSON of a request. Raises HTTPError if it is none."""
    try:
        return json.loads(data, object_pairs_hook=_fields)
    except (ValueError, RecursionError) as error:
        raise HTTPError(400, f"The body is not JSON: {error}.") from error


def _message(reply: Reply) -> dict[str, Any]:
    """The message of a reply. One that is a thought or calls alone has no content."""
    fields: dict[str, Any] = {} if reply.thought is None else dict.fromkeys(_THOUGHT_FIELDS, reply.thought)
    if reply.tool_calls:
        fields["tool_calls"] = [call.row() for call in reply.tool_calls]
    return {"role": "assistant", "content": (reply.text or None) if fields else reply.text, **fields}


def _usage(completion: Completion) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "total_tokens": completion.prompt_tokens + completion.completion_tokens,
    }
    if completion.thought_tokens:
        usage["completion_tokens_details"] = {"reasoning_tokens": completion.thought_tokens}
    return usage


def _token(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": max(logprob, LOWEST_LOGPROB), "bytes": list(text.encode())}


def make_app(app: ChatClient | ChatApp) -> Starlette:
    """Return the application that serves a client; one whose replies have token ids must `decode` them."""
    routes = app.routes() if isinstance(app, ChatApp) else ChatApp(app).routes()
    return Starlette(routes=routes, exception_handlers=dict.fromkeys((HTTPException, SweetError, Exception), refused))


def _chat_events(answer: Mapping[str, Any], *, usage: bool) -> str:
    """Return the events of a streamed chat completion, made of the whole reply.

    Args:
        usage: whether a last chunk has the numbers of tokens (`stream_options.include_usage`).
    """
    shared = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    chunks: list[dict[str, Any]] = []
    for choice in answer["choices"]:
        delta = dict(choice["message"])
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(calls)]
        start = {**choice, "delta": delta, "finish_reason": None}
        del start["message"]
        ending = {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}
        chunks += [{**shared, "choices": [part]} for part in (start, ending)]
    if usage:
        chunks.append({**shared, "choices": [], "usage": answer["usage"]})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
