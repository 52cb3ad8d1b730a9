"""The kind of task `tau2:DOMAIN`: a domain of the user's checkout of tau2-bench.

The checkout is trusted as a plug-in is: its own Python runs it in a process of its own (`child`), which all dialogues
of a domain share. `TAU2_DATA_DIR` says where it is, the variable by which tau2 itself finds its data.

The customer's scenario is what the human reads. The critic also reads the calls of the reference. The verdict is that
of the checkout's own evaluator, on what was said and on the calls that were made: it makes the calls again on new
records, and compares them with those that the reference leaves.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from sweet.errors import SweetError, UsageError
from sweet.json_value import JsonValue
from sweet.tasks import prompts
from sweet.tasks.base import Message, Task, Tool, spoken
from sweet.tasks.files import check_split
from sweet.tasks.findings import Finding
from sweet.tasks.kind import TaskKind
from sweet.tasks.scores import DialogueScorer, ScoreOutcome, ScoringRequest, Verdict, tests_detail
from sweet.tasks.tools import Toolbox, ToolResult
from sweet.tasks.trajectory import Trajectory

DATA = "TAU2_DATA_DIR"
OPENING = "Hello, I need your help."
"""The customer's first message in every task: tau2's own customer writes first after a greeting."""
NOTHING_MORE = "That is all, thank you."
_CHILD = Path(__file__).with_name("child.py")
_SECONDS = 300.0
"""After which a process that does not answer is ended."""


class Prompts(prompts.Prompts):
    """The prompts of the customer service; `{policy}` in the agent's is the domain's policy."""

    package = "sweet.tasks.tau2"
    speaker = "Service"


class Checkout:
    """The process of a checkout of tau2-bench.

    Args:
        data: its folder `data`.

    Attributes:
        domains: what is known of its domains (`about`).
    """

    def __init__(self, data: Path) -> None:
        root = data.parent
        own = root / ".venv/bin/python"
        paths = os.pathsep.join(filter(None, (str(root / "src"), os.environ.get("PYTHONPATH"))))
        self.domains: dict[str, Mapping[str, Any]] = {}
        self._lock = threading.Lock()
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  as long as the process is
        self._process = subprocess.Popen(
            [str(own) if own.is_file() else sys.executable, str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | {"PYTHONPATH": paths, DATA: str(data)},
        )
        atexit.register(self.close)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, function: str, **arguments: Any) -> Any:
        """Return the result of a function of `child`.

        Raises:
            SweetError: it failed, or the process ended.
        """
        process, answer = self._process, ""
        assert process.stdin is not None
        assert process.stdout is not None
        with self._lock:
            clock = threading.Timer(_SECONDS, process.kill)
            clock.start()
            try:
                process.stdin.write(json.dumps([function, arguments]) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except OSError:
                pass
            finally:
                clock.cancel()
        found = json.loads(answer) if answer else {"error": self._last_words()}
        if "error" in found:
            what = f"tau2 failed in {function!r}: {found['error']}"
            raise SweetError(what, where=DATA, fix="try the same with the checkout's own commands: tau2 check-data")
        return found["result"]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            assert file is not None
            with suppress(OSError):  # what it was not sent
                file.close()
        atexit.unregister(self.close)

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read()[-2000:].split("\n")
        return next((line for line in reversed(lines) if line.strip()), "its process ended")


_RUNNING: dict[tuple[Path, int], Checkout] = {}
"""The processes by their data and the process that started each: one that was forked starts its own."""


def checkout() -> Checkout:
    """Return the process of the user's checkout, which is started at the first call.

    Raises:
        UsageError: it is not known where the checkout is.
    """
    given = os.environ.get(DATA, "")
    if not (Path(given) / "tau2/domains").is_dir() or not given:
        what = f"It is not known where tau2-bench is: {DATA} names no folder with its domains."
        raise UsageError(what, where=DATA, fix=f"export {DATA}=/path/to/tau2-bench/data")
    key = Path(given).absolute(), os.getpid()
    if key in _RUNNING and not _RUNNING[key].alive:
        _RUNNING.pop(key).close()
    if key not in _RUNNING:
        _RUNNING[key] = Checkout(key[0])
    return _RUNNING[key]


def about(domain: str) -> Mapping[str, Any]:
    """Return the policy, the tools and the hash of the records of a domain."""
    known = checkout().domains
    if domain not in known:
        known[domain] = checkout().ask("about", domain=domain)
    return known[domain]


class Tau2Tools(Toolbox):
    """The tools of a domain over the records of one dialogue. Its state has the calls that were made."""

    def __init__(self, domain: str, task: Task) -> None:
        self._domain, self._task, self._made = domain, task, list[JsonValue]()
        self.tools = [Tool.model_validate(tool) for tool in about(domain)["tools"]]

    async def __aenter__(self) -> Self:
        self._checkout = await asyncio.to_thread(checkout)
        self._session = await self._ask("start", domain=self._domain, task=row_of(self._task))
        return self

    async def __aexit__(self, *raised: Any) -> None:
        if self._checkout.alive:
            await self._ask("end", session=self._session)

    async def _ask(self, function: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(self._checkout.ask, function, **arguments)

    async def call(self, name: str, arguments: dict[str, JsonValue]) -> ToolResult:
        self._made.append([name, arguments])
        return ToolResult.model_validate(await self._ask("call", session=self._session, name=name, arguments=arguments))

    async def state(self) -> JsonValue:
        return {"calls": self._made}


def row_of(task: Task) -> dict[str, Any]:
    """Return a task as tau2 has it."""
    row: dict[str, Any] = (task.model_extra or {})["tau2"]
    return row


class Tau2Scorer(DialogueScorer):
    """Asks the checkout's evaluator. Its name changes with what it is told."""

    def __init__(self, domain: str) -> None:
        super().__init__("tau2-1", {"domain": domain, "records": about(domain)["records"]})
        self._domain = domain

    def verdict(self, trajectory: Trajectory) -> Verdict:
        state = trajectory.tool_state
        calls = state.get("calls") if isinstance(state, dict) else []
        said = [[message.role, message.content] for message in spoken(trajectory.messages(None))]
        found = checkout().ask(
            "evaluate",
            domain=self._domain,
            task=row_of(trajectory.task),
            said=said,
            calls=calls,
            answered=trajectory.outcome == "answered",
        )
        parts: dict[str, float] = found["parts"]
        got = dict.fromkeys(parts, "not met") | {"COMMUNICATE": f"not said: {', '.join(found['unsaid'])}"}
        tests = {
            name: {"passed": value >= 1, "expected": "met", "got": "met" if value >= 1 else got[name]}
            for name, value in parts.items()
        }
        detail = tests_detail(tests) | ({"not judged": "NL_ASSERTION"} if found["unjudged"] else {})
        if not parts and found["reward"] < 1:
            detail["why"] = found["info"]
        passed = sum(test["passed"] is True for test in tests.values())
        outcome: ScoreOutcome = "passed" if found["reward"] >= 1 else "failed"
        return Verdict(found["reward"], passed, len(tests), outcome, detail)


class Tau2Kind(TaskKind):
    """The customer service of tau2-bench."""

    name = "tau2"
    takes = "DOMAIN"
    texts = Prompts
    human_reply_limit = 800

    @property
    def splits(self) -> Mapping[str, Sequence[str]]:
        return {self.source: ("train", "test")}

    def load(self, tasks: str, split: str) -> list[Task]:
        if tasks != self.source:
            return super().load(tasks, split)
        check_split(tasks, split, self.splits)
        return [self._task(**found) for found in checkout().ask("tasks", domain=self.source, split=split)]

    def _task(self, scenario: str, task: dict[str, Any]) -> Task:
        criteria = task.get("evaluation_criteria") or {}
        wanted = [f"{made['name']} {json.dumps(made['arguments'])}" for made in criteria.get("actions") or ()]
        wanted += [f"Say: {text}" for text in criteria.get("communicate_info") or ()]
        reference = "\n".join(wanted) or "Change nothing."
        return Task(
            id=f"{self.source}-{task['id']}",
            problem_description=OPENING,
            ground_truth=reference,
            hidden_information=f"{scenario}\n\nThe reference:\n{reference}",
            **{"scenario": scenario, "tau2": task},
        )

    def faults(self, tasks: Sequence[Task]) -> list[Finding]:
        """Find the tasks in which the customer has tools, which our human has not, or that begin amid a dialogue."""
        found = []
        for task in tasks:
            row = row_of(task)
            initial, criteria = row.get("initial_state") or {}, row.get("evaluation_criteria") or {}
            functions = [*(initial.get("initialization_actions") or ()), *(criteria.get("env_assertions") or ())]
            made = {function["env_type"] for function in functions}
            if "user" in made | {action["requestor"] for action in criteria.get("actions") or ()}:
                what = "the customer has tools, which the human of this program cannot call"
                found.append(Finding(task.id, "invalid", what, "omit it: --skip-invalid", unusable=True))
            elif initial.get("message_history"):
                what = "the dialogue has begun already"
                found.append(Finding(task.id, "invalid", what, "omit it: --skip-invalid", unusable=True))
        return found

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
        told = sum(message.role == "user" for message in dialogue) - 1
        return next(iter([part for part in parts if part][told : told + 1]), NOTHING_MORE)

    def toolbox(self, task: Task) -> Tau2Tools:
        return Tau2Tools(self.source, task)

    @contextmanager
    def open_scorer(self, request: ScoringRequest) -> Iterator[Tau2Scorer]:
        yield Tau2Scorer(self.source)
