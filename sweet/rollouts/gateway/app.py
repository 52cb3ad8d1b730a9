"""The HTTP application of the gateway: the model and the human of a session, and what is said about it.

    POST /v1/chat/completions                    the session is named by the key: Bearer SECRET/SESSION
    POST /sessions/SESSION/v1/chat/completions   the same; the key need not name the session
    POST /v1/responses, /sessions/SESSION/v1/responses   the same by the responses API (`sweet.llm.responses`)
    POST /sessions/SESSION                       its task, answer, reward, rewards of turns, and end (`Posted`)
    GET  /sessions/SESSION                       what is known of it (`Session.verdict`)

The model `human` is the simulated human of the session's task, any other name the agent's model. The human reads the
last message of a request, and knows what was said before from the session. SECRET is the token of the gateway, or that
of the session (`key_of`), which opens no other one. Fields that a request leaves out are those of the rollout. A
session has at most `max_turns` calls of the model, and of the human; a refused call says so and changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sweet.errors import ServerError, place_and_problem
from sweet.humans.base import Human
from sweet.llm.base import ChatClient, Completion, ContextOverflow, Reply, Sampling
from sweet.llm.listening import HTTPError
from sweet.llm.server import ChatApp, ChatBody, fields_of
from sweet.rollouts.dialogue import Rules
from sweet.rollouts.gateway.sessions import Session
from sweet.rollouts.prepare import Dialogues
from sweet.rollouts.steps import Asked, Posted, Steps
from sweet.tasks.base import Message, Task
from sweet.tasks.kind import TaskKind, system_prompt

HUMAN = "human"
"""The name of the model that is the simulated human."""
MOST_SESSIONS = 10_000
"""Sessions under way at most."""
MOST_POSTED = 8 << 20
"""Bytes that are posted about a session at most; each post counts as 1 KiB more, which its step takes in memory."""


def key_of(token: str, session: str) -> str:
    """Return the key of one session, which opens no other."""
    return f"{hmac.new(token.encode(), session.encode(), hashlib.sha256).hexdigest()}/{session}"


def public_part(kind: TaskKind, task: Task, max_turns: int) -> dict[str, Any]:
    """Return what a program may know of a task: nothing that is hidden from the agent."""
    public = {"id": task.id, "kind": kind.name, "problem_description": task.problem_description}
    return {**public, "system": system_prompt(kind, max_turns), "max_turns": max_turns}


class Gateway(ChatApp):
    """The routes, over sessions that are begun elsewhere; `begin` and `end` say what else a server does with them.

    Args:
        client: the agent's model.
        humans: by the names that sessions have for them.
        token: of the gateway; empty for a server that checks no key.
        rules: of the sessions; default: those of the dialogues. Where they record the probabilities, all that a reply
            is sampled by is theirs, so that these are of the distribution that was sampled.
    """

    has_agent = True

    def __init__(
        self,
        client: ChatClient,
        humans: Mapping[str | None, Human],
        dialogues: Dialogues,
        token: str = "",
        rules: Rules | None = None,
    ) -> None:
        super().__init__(client)
        self.humans, self.kind, self.rules, self.token = humans, dialogues.kind, rules or dialogues.rules(), token
        self.tasks, self.seed = {task.id: task for task in dialogues.tasks}, dialogues.config.seed
        self.sessions: dict[str, Session] = {}

    def begin(self, name: str) -> Session:
        """Return a new session. Raises HTTPError if there is to be none of this name."""
        raise HTTPError(404, "There is no such session.")

    def end(self, session: Session) -> None:
        """Take note of a session that its program has ended."""

    def routes(self) -> list[Route]:
        return [
            *super().routes(),
            Route("/sessions/{session}/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/sessions/{session}/v1/responses", self.responses, methods=["POST"]),
            Route("/sessions/{session}", self.session, methods=["GET", "POST"]),
        ]

    def check(self, body: ChatBody) -> None:
        """What a request may ask for depends on its session; see `complete`."""

    def remembered(self, request: Request) -> dict[str, list[dict[str, Any]]]:
        session = self._session(request)
        return {} if session is None else session.responses

    async def session(self, request: Request) -> Response:
        """Answer what is said or asked about a session."""
        session = self._session(request)
        assert session is not None, "the path names it"
        if request.method == "GET":
            return JSONResponse(session.verdict())
        _check_open(session)
        data = await request.body()
        posted_bytes = session.posted_bytes + len(data) + 1024
        if posted_bytes > MOST_POSTED:
            raise HTTPError(403, "Too much was posted about the session.")
        session.posted_bytes = posted_bytes
        try:
            posted = Posted.model_validate(fields_of(data))
        except ValidationError as error:
            raise HTTPError(400, place_and_problem(error, "the body")) from error
        if isinstance(posted.task, str):
            if posted.task not in self.tasks:
                raise HTTPError(404, f"There is no task {posted.task[:100]!r} here.", param="task")
            posted = posted.model_copy(update={"task": self.tasks[posted.task]})
        if posted.task is not None and session.task is not None and posted.task != session.task:
            raise HTTPError(403, f"The session is one on the task {session.task.id}.", param="task")
        if any(not 0 <= turn < session.calls for turn in posted.turn_rewards):
            raise HTTPError(400, f"The session has {session.calls} calls, from 0.", param="turn_rewards")
        session.record(posted=posted)
        public_task = None if session.task is None else public_part(self.kind, session.task, self.rules.max_turns)
        if session.ended:
            self.end(session)
        return JSONResponse({**session.verdict(), "task": public_task})

    async def complete(self, request: Request, body: ChatBody) -> Completion:
        """Let the agent or the human of a session reply, and record it."""
        session = self._session(request)
        if session is None:
            super().check(body)
            return await super().complete(request, body)
        _check_open(session)
        if session.is_over():
            session.stopped = True
            raise HTTPError(403, "No more calls are answered.", "stopped")
        session.away = None
        try:
            return await asyncio.create_task(self._reply(session, body), context=session.context)
        except ServerError as error:
            session.away = error
            raise

    async def _reply(self, session: Session, body: ChatBody) -> Completion:
        if body.n != 1 or (body.logprobs and not hasattr(self.client, "decode")):
            raise HTTPError(400, "A call of a session has one reply, and the log-probabilities if the model has them.")
        if body.model == HUMAN:
            if len(session.replied) + session.waiting >= (most := self.rules.max_turns):
                raise HTTPError(403, f"The human has replied {most} times in this session.", "out_of_turns")
            session.waiting += 1
            try:
                async with session.asking:
                    return await self._human(session, body)
            finally:
                session.waiting -= 1
        if not self.has_agent:
            raise HTTPError(404, f"The model of a session is called {HUMAN!r} here.", "model_not_found", "model")
        number, began, most = session.calls + session.under_way, time.monotonic(), self.rules.max_turns
        if number >= most:
            session.refused = "out_of_turns", f"the session has had its {most} calls"
            raise HTTPError(403, f"The session has had its {most} calls.", "out_of_turns")
        sampling, messages = self._sampling(body, session.sampling_seed(self.seed, number)), body.chat()
        session.under_way += 1
        try:
            done = await self.client.chat(messages, sampling)
        except ContextOverflow as error:
            session.refused = "context_overflow", error.what
            raise
        finally:
            session.under_way -= 1
        _check_open(session)
        [reply] = done.replies
        if reply.tool_calls:  # servers may give them no ids, or the same ones again
            calls = (call.model_copy(update={"id": f"call-{number}-{n}"}) for n, call in enumerate(reply.tool_calls))
            done = replace(done, replies=(replace(reply, tool_calls=tuple(calls)),))
        asked = Asked(messages=tuple(messages), tools=sampling.tools, seed=sampling.seed)
        session.record(asked=asked, completion=done, seconds=time.monotonic() - began)
        return done

    def _sampling(self, body: ChatBody, seed: int) -> Sampling:
        """Return the parameters of a request, with those of the rollout where it gives none, or they are fixed."""
        defaults, requested, fields_set = self.rules.sampling(seed), body.sampling(), body.model_fields_set
        lacking = {"temperature", "top_p", "seed"} - (set() if self.rules.record_logprobs else fields_set)
        lacking |= {name for name in ("effort", "max_thought_tokens") if getattr(requested, name) is None}
        lacking |= set() if {"max_tokens", "max_completion_tokens"} & fields_set else {"max_tokens"}
        return replace(requested, logprobs=True, **{name: getattr(defaults, name) for name in lacking})

    async def _human(self, session: Session, body: ChatBody) -> Completion:
        task, last = session.task, body.chat()[-1]
        if task is None:
            raise HTTPError(409, "The human knows the task, and the session has none yet: POST it to the session.")
        if last.role != "user":
            raise HTTPError(400, "The human answers the last message, which must be one of the user.", param="messages")
        if session.fault is not None:
            raise HTTPError(409, f"The human failed in this session: {session.fault}.", "human_fault")
        question, began = Message(role="assistant", content=last.content), time.monotonic()
        request = Message(role="user", content=task.problem_description)
        reply = await self.humans[session.human].reply(task, [request, *session.said, question])
        reply = reply if reply.text.strip() else replace(reply, fault="empty")
        _check_open(session)
        session.record(asked=Asked(messages=(question,)), reply=reply, seconds=time.monotonic() - began)
        if reply.fault is not None:  # it is not passed on
            raise HTTPError(409, f"The human failed in this session: {reply.fault}.", "human_fault")
        return Completion((Reply(reply.text),), reply.prompt_tokens, reply.completion_tokens, HUMAN)

    def _session(self, request: Request) -> Session | None:
        """Return the session of a request; None for one outside of sessions at a server without a token.

        Raises:
            HTTPError: its key does not open the session, or there is none.
        """
        name = request.path_params.get("session")
        secret, _, name_in_key = request.headers.get("authorization", "").partition(" ")[2].strip().partition("/")
        if self.token:
            keys = self.token, key_of(self.token, name_in_key).partition("/")[0]
            if not any(hmac.compare_digest(secret.encode(), key.encode()) for key in keys):
                raise HTTPError(401, "The key is not that of this gateway.", "invalid_api_key")
            if name is not None and name_in_key not in ("", name):
                raise HTTPError(403, "The key is that of another session.")
            name = name or name_in_key
            if not name:
                raise HTTPError(
                    400, "Name a session: in the key, SECRET/SESSION, or the address, /sessions/SESSION/v1."
                )
        if name is None:
            return None
        if name not in self.sessions:
            if not (len(name) <= 64 and name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
                raise HTTPError(400, "A session is named by 1 to 64 letters, digits, - and _.")
            if len(self.sessions) >= MOST_SESSIONS:
                self.sessions = {name: session for name, session in self.sessions.items() if not session.ended}
            if len(self.sessions) >= MOST_SESSIONS:
                raise HTTPError(429, f"{MOST_SESSIONS:,} sessions are under way: end some.")
            self.sessions[name] = self.begin(name)
        return self.sessions[name]


class HumanServer(Gateway):
    """Sessions of a human alone, which any program begins by naming one in the address."""

    has_agent = False

    def begin(self, name: str) -> Session:
        return Session(name, Steps(), human=[*self.humans][len(self.sessions) % len(self.humans)])


def _check_open(session: Session) -> None:
    if session.ended:
        raise HTTPError(409, "The session has ended.", "session_ended")
