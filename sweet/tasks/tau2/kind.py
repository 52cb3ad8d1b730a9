"""The kind of task `tau2:DOMAIN`: a domain of the user's checkout of tau2-bench.

The checkout is trusted as a plug-in is: its own Python runs it in a process of its own (`child`), which all dialogues
of a domain share. `TAU2_DATA_DIR` says where it is, the variable by which tau2 itself finds its data.

The customer's scenario is what the human reads. The critic also reads the calls of the reference. The verdict is that
of the checkout's own evaluator, on what was said and on the calls that were made: it makes them again on new
records, and compares them with those that the reference leaves.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from sweet.errors import SweetError, UsageError
from sweet.json_value import JsonValue
from sweet.tasks import prompts
from sweet.tasks.base import Message, Task, Tool, spoken
from sweet.tasks.kind import TaskKind
from sweet.tasks.scores import ALL_OR_NOTHING, DialogueScorer, ScoreOutcome, ScoringRequest, Verdict, tests_detail
from sweet.tasks.tools import Call, Toolbox, ToolResult, rest_of
from sweet.tasks.trajectory import Trajectory

DATA = "TAU2_DATA_DIR"
OPENING = "Hello, I need your help."
"""The customer's first message in every task: tau2's own customer writes first after a greeting."""
NOTHING_MORE = "That is all, thank you."
_CHILD = Path(__file__).with_name("child.py")


class Prompts(prompts.Prompts):
    """The prompts of the customer service; `{policy}` in the agent's is the domain's policy."""

    package = "sweet.tasks.tau2"
    speaker = "Service"


class Checkout:
    """The process of a checkout of tau2-bench with this folder `data`; it ends when its input is closed."""

    def __init__(self, data: Path) -> None:
        venv_python = data.parent / ".venv/bin/python"
        paths = os.pathsep.join(filter(None, (str(data.parent / "src"), os.environ.get("PYTHONPATH"))))
        self._lock = threading.Lock()
        self.process = subprocess.Popen(
            [str(venv_python) if venv_python.is_file() else sys.executable, str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": paths, DATA: str(data)},
        )

    def ask(self, function: str, **arguments: Any) -> Any:
        """Return the result of a function of `child`.

        Raises:
            SweetError: it failed, or the process ended.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        answer = ""
        with self._lock, suppress(OSError, ValueError):
            self.process.stdin.write(json.dumps([function, arguments]) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        if not answer:
            self.close()  # one whose output has ended may still run
        reply = json.loads(answer or '{"error": "its process ended"}')
        if "error" in reply:
            what = f"tau2 failed in {function!r}: {reply['error']}"
            raise SweetError(what, where=DATA, fix="try the same with the checkout's own commands: tau2 check-data")
        return reply["result"]

    def close(self) -> None:
        with suppress(OSError), self.process:
            self.process.kill()


_RUNNING: dict[tuple[Path, int], Checkout] = {}
"""The processes by their data and the process that started each: one that was forked starts its own."""


def checkout() -> Checkout:
    """Return the process of the user's checkout, which is started at the first call.

    Raises:
        UsageError: it is not known where the checkout is.
    """
    folder = os.environ.get(DATA, "")
    if not folder or not (Path(folder) / "tau2/domains").is_dir():
        what = f"It is not known where tau2-bench is: {DATA} names no folder with its domains."
        raise UsageError(what, where=DATA, fix=f"export {DATA}=/path/to/tau2-bench/data")
    key = Path(folder).absolute(), os.getpid()
    if key in _RUNNING and _RUNNING[key].process.poll() is not None:
        _RUNNING.pop(key).close()
    return _RUNNING.setdefault(key, _RUNNING.get(key) or Checkout(key[0]))


def about(domain: str) -> Mapping[str, Any]:
    """Return the policy, the tools and the hash of the records of a domain."""
    return _about(checkout(), domain)


@cache
def _about(process: Checkout, domain: str) -> Mapping[str, Any]:
    domain_info: dict[str, Any] = process.ask("about", domain=domain)
    return {**domain_info, "tools": [Tool.model_validate(tool) for tool in domain_info["tools"]]}


class Tau2Tools(Toolbox):
    """The tools of a domain over the records of one dialogue, which are made of its calls. Its state is the calls."""

    def __init__(self, domain: str, task: Task) -> None:
        self._domain_and_task, self._calls = {"domain": domain, "task": row_of(task)}, list[JsonValue]()
        self.tools = about(domain)["tools"]

    async def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        self._calls.append([name, arguments])
        result = await asyncio.to_thread(checkout().ask, "call", calls=self._calls, **self._domain_and_task)
        return ToolResult.model_validate(result)

    async def state(self) -> JsonValue:
        return {"calls": self._calls}


def row_of(task: Task) -> dict[str, Any]:
    """Return a task as tau2 has it."""
    row: dict[str, Any] = (task.model_extra or {})["tau2"]
    return row


def reference_of(row: Mapping[str, Any]) -> tuple[list[Call], list[str]]:
    """Return the calls of a task's reference, and what it tells the customer."""
    criteria = row.get("evaluation_criteria") or {}
    calls = [(action["name"], action["arguments"]) for action in criteria.get("actions") or ()]
    return calls, [*(criteria.get("communicate_info") or ())]


class Tau2Scorer(DialogueScorer):
    """Asks the checkout's evaluator. Its name changes with what it is told."""

    metrics = ALL_OR_NOTHING

    def __init__(self, domain: str) -> None:
        super().__init__("tau2-1", {"domain": domain, "records": about(domain)["records"]})
        self._domain = domain

    def verdict(self, trajectory: Trajectory) -> Verdict:
        state = trajectory.tool_state
        calls = state.get("calls") if isinstance(state, dict) else []
        dialogue = [[message.role, message.content] for message in spoken(trajectory.messages(None))]
        evaluation = checkout().ask(
            "evaluate",
            domain=self._domain,
            task=row_of(trajectory.task),
            dialogue=dialogue,
            calls=calls,
            answered=trajectory.outcome == "answered",
        )
        tests, reward = evaluation["tests"], evaluation["reward"]
        detail = tests_detail(tests) | ({"not judged": "NL_ASSERTION"} if evaluation["unjudged"] else {})
        if not tests and reward < 1:
            detail["why"] = evaluation["info"]
        outcome: ScoreOutcome = "passed" if reward >= 1 else "failed"
        return Verdict(reward, sum(test["passed"] for test in tests.values()), len(tests), outcome, detail)


class Tau2Kind(TaskKind):
    """The customer service of tau2-bench."""

    name = "tau2"
    takes = "DOMAIN"
    texts = Prompts
    human_reply_limit = 800
    metrics = ALL_OR_NOTHING

    def drawn(self, tasks: str, split: str) -> list[Task]:
        if not (rows := checkout().ask("tasks", domain=tasks, split=split)):
            what = "In each of these tasks the customer has tools, which the human of this program cannot call."
            raise UsageError(what, where=f"--task {self.name}", fix="--task tau2:retail")
        return [self._task(**task) for task in rows]

    def _task(self, scenario: str, task: dict[str, Any]) -> Task:
        calls, texts = reference_of(task)
        lines = [f"{name} {json.dumps(arguments)}" for name, arguments in calls] + [f"Say: {text}" for text in texts]
        reference = "\n".join(lines) or "Change nothing."
        return Task(
            id=f"{self.source}-{task['id']}",
            problem_description=OPENING,
            ground_truth=reference,
            hidden_information=f"{scenario}\n\nThe reference:\n{reference}",
            **{"scenario": scenario, "tau2": task},
        )

    def agent_system(self) -> str:
        return self.prompts.agent.replace("{policy}", about(self.source)["policy"].strip())

    def human_prompt(self, task: Task, dialogue: Sequence[Message]) -> list[Message]:
        scenario = (task.model_extra or {})["scenario"]
        return super().human_prompt(task.model_copy(update={"hidden_information": scenario}), dialogue)

    def check_scripted_human(self, tasks: Sequence[Task]) -> None:
        """Accept all tasks: the scripted customer reads the scenario out, one part at a time."""

    def scripted_reply(self, task: Task, dialogue: Sequence[Message]) -> str:
        instructions = row_of(task)["user_scenario"]["instructions"]
        names = ("reason_for_call", "known_info", "task_instructions")
        parts = [instructions] if isinstance(instructions, str) else [instructions.get(name) for name in names]
        replies = sum(message.role == "user" for message in dialogue) - 1
        return next(iter([part for part in parts if part][replies : replies + 1]), NOTHING_MORE)

    def reference_from(self, task: Task, dialogue: Sequence[Message]) -> list[Message]:
        calls, texts = reference_of(row_of(task))
        return rest_of(calls, " ".join(["Done.", *texts]), dialogue, about(self.source)["tools"])

    def toolbox(self, task: Task) -> Tau2Tools:
        return Tau2Tools(self.source, task)

    @contextmanager
    def open_scorer(self, request: ScoringRequest) -> Iterator[Tau2Scorer]:
        yield Tau2Scorer(self.source)
