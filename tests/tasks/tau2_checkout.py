"""A small package with the interface of tau2-bench that the program uses: a library with two readers and one book.

It has only what is needed to read tasks, make calls and compare records; `tests/tasks/test_tau2.py` also plays the real
one, where it is on this machine.
"""

from __future__ import annotations

import json
from pathlib import Path

MODULES = {
    "__init__": "",
    "data_model/__init__": "",
    "data_model/message": """
from typing import Any
from pydantic import BaseModel

class ToolCall(BaseModel):
    id: str
    name: str
    arguments: dict
    requestor: str

class _Message(BaseModel):
    role: str
    content: str | None
    tool_calls: list[ToolCall] | None = None

class AssistantMessage(_Message): pass
class UserMessage(_Message): pass

class ToolMessage(BaseModel):
    role: str
    id: str
    content: str
    requestor: str
    error: bool = False
""",
    "data_model/tasks": """
from enum import Enum
from typing import Any
from pydantic import BaseModel

class RewardType(str, Enum):
    DB = "DB"
    COMMUNICATE = "COMMUNICATE"
    NL_ASSERTION = "NL_ASSERTION"

class Action(BaseModel):
    name: str
    arguments: dict
    requestor: str

class Criteria(BaseModel):
    actions: list[Action] = []
    env_assertions: None = None
    communicate_info: list[str] = []
    nl_assertions: list[str] | None = None
    reward_basis: list[RewardType] = [RewardType.DB, RewardType.COMMUNICATE]

class Scenario(BaseModel):
    persona: str | None = None
    instructions: Any
    def __str__(self):
        return f"Instructions: {self.instructions}"

class Initial(BaseModel):
    initialization_data: Any = None
    initialization_actions: list[dict] | None = None
    message_history: list[dict] | None = None

class Task(BaseModel):
    id: str
    user_scenario: Scenario
    initial_state: Initial | None = None
    evaluation_criteria: Criteria | None = None
""",
    "data_model/simulation": """
from enum import Enum
from typing import Any
from pydantic import BaseModel

class TerminationReason(str, Enum):
    AGENT_STOP = "agent_stop"
    MAX_STEPS = "max_steps"

class SimulationRun(BaseModel):
    id: str
    task_id: str
    start_time: str
    end_time: str
    duration: float
    termination_reason: TerminationReason
    messages: list[Any]
""",
    "registry": """
import json, os, sys, time
from types import SimpleNamespace
from tau2.data_model.message import ToolMessage
from tau2.data_model.tasks import Task

TASKS = os.path.join(os.environ["TAU2_DATA_DIR"], "tau2/domains/library/tasks.json")
SCHEMA = {"type": "object", "properties": {"book": {"type": "string"}, "to": {"type": "string"}}, "required": ["book"]}

class Environment:
    def __init__(self, solo_mode=False):
        self.records = {"Emma": None}
        print("tau2 prints things")
    def get_tools(self):
        return [SimpleNamespace(openai_schema={"type": "function", "function": {"name": name, "parameters": SCHEMA}})
                for name in ("lend", "end")]
    def get_policy(self):
        return "Lend every book once."
    def get_db_hash(self):
        return json.dumps(self.records)
    def set_state(self, data, actions, messages):
        self.records.update(data or {})
    def get_response(self, call):
        try:
            if call.name == "end":
                os.closerange(0, 1024)  # the end of the output is read while the process still runs
                time.sleep(0.5)
                os._exit(3)
            if self.records[call.arguments["book"]]:
                raise ValueError("it is lent")
            self.records[call.arguments["book"]] = call.arguments.get("to", "")
            return ToolMessage(role="tool", id=call.id, content="lent", requestor="assistant")
        except Exception as error:
            return ToolMessage(role="tool", id=call.id, content=f"Error: {error}", requestor="assistant", error=True)

class Registry:
    def get_env_constructor(self, domain):
        return {"library": Environment}[domain]
    def get_tasks_loader(self, domain):
        self.get_env_constructor(domain)
        return lambda split: [Task.model_validate(row) for row in json.load(open(TASKS))[split]]

registry = Registry()
""",
    "evaluator/__init__": "",
    "evaluator/evaluator": """
from enum import Enum
from types import SimpleNamespace
from tau2.data_model.message import ToolCall
from tau2.registry import registry

class EvaluationType(str, Enum):
    ALL = "all"

def evaluate_simulation(run, task, kind, solo_mode, domain, strict_replay):
    if run.termination_reason.value != "agent_stop":
        return SimpleNamespace(reward=0.0, reward_breakdown=None, communicate_checks=None, info="not ended")
    made, wanted = registry.get_env_constructor(domain)(), registry.get_env_constructor(domain)()
    for message in run.messages:
        for call in getattr(message, "tool_calls", None) or ():
            made.get_response(call)
    for action in task.evaluation_criteria.actions:
        call = ToolCall(id="0", name=action.name, arguments=action.arguments, requestor="assistant")
        wanted.get_response(call)
    said = " ".join(m.content or "" for m in run.messages if m.role == "assistant")
    checks = [SimpleNamespace(info=info, met=info in said) for info in task.evaluation_criteria.communicate_info]
    parts = {"DB": float(made.records == wanted.records), "COMMUNICATE": float(all(check.met for check in checks)),
             "NL_ASSERTION": 0.0}
    parts = {basis: parts[basis.value] for basis in task.evaluation_criteria.reward_basis}
    reward = 1.0
    for value in parts.values():
        reward *= value
    return SimpleNamespace(reward=reward, reward_breakdown=parts, communicate_checks=checks, info=None)
""",
}


def task(name: str, **criteria: object) -> dict[str, object]:
    """Return a task as tau2 has it: lend Emma to Ann, and say that it is due in May."""
    lend = {"name": "lend", "arguments": {"book": "Emma", "to": "Ann"}, "requestor": "assistant"}
    wanted = {"actions": [lend], "communicate_info": ["May"]} | criteria
    told = {"reason_for_call": "You want Emma.", "known_info": "You are Ann.", "task_instructions": "Be short."}
    return {"id": name, "user_scenario": {"instructions": told}, "evaluation_criteria": wanted}


def write_checkout(folder: Path) -> Path:
    """Write the package and its tasks, and return its folder `data`."""
    for name, source in MODULES.items():
        file = folder / "src/tau2" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    assertions = {"nl_assertions": ["It is polite."], "reward_basis": ["DB", "NL_ASSERTION"]}
    begun = task("begun") | {"initial_state": {"message_history": [{"role": "user", "content": "Hello"}]}}
    acts = {"name": "pay", "arguments": {}, "requestor": "user"}
    splits = {
        "train": [task("plain"), task("polite", **assertions)],
        "test": [task("plain-test"), begun, task("pays", actions=[acts])],
    }
    data = folder / "data"
    (data / "tau2/domains/library").mkdir(parents=True)
    (data / "tau2/domains/library/tasks.json").write_text(json.dumps(splits))
    return data
