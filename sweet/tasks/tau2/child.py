"""The process that runs a checkout of tau2-bench: it makes the calls of its tools, and asks its evaluator.

It is started with the checkout's own Python, and imports nothing of this program. Each line of its input is a JSON
array, the name of a function here and its arguments by name; each line of its output is the result, or `{"error": …}`.
What tau2 prints goes to stderr. Its evaluator never asks a model here.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from typing import Any


@cache
def about(domain: str) -> dict[str, Any]:
    """Return the policy, the tools and the hash of the records at the beginning."""
    environment = registry.get_env_constructor(domain)()
    tools = [tool.openai_schema["function"] for tool in environment.get_tools()]
    return {"policy": environment.get_policy(), "tools": tools, "records": environment.get_db_hash()}


def tasks(domain: str, split: str) -> list[dict[str, Any]]:
    """Return the tasks of a split that can be played, each with the customer's scenario as text.

    A domain without splits is a test.
    """
    load = registry.get_tasks_loader(domain)
    try:
        rows = load(split)
    except ValueError:
        if split != "test":
            raise
        rows = load()
    return [
        {"scenario": str(task.user_scenario), "task": task.model_dump(mode="json")}
        for task in rows
        if is_playable(task)
    ]


def is_playable(task: Any) -> bool:
    """Return whether the customer has no tools, and the dialogue has not begun already."""
    initial, criteria = task.initial_state, task.evaluation_criteria
    actions = list(initial.initialization_actions or ()) if initial else []
    actions += [*(criteria.env_assertions or ()), *(criteria.actions or ())] if criteria else []
    by_user = any("user" in (getattr(action, "env_type", ""), getattr(action, "requestor", "")) for action in actions)
    return not by_user and not (initial and initial.message_history)


def call(domain: str, task: dict[str, Any], calls: list[list[Any]]) -> dict[str, Any]:
    """Return the result of the last of the calls of a dialogue, made on new records as tau2 makes them."""
    environment, initial = registry.get_env_constructor(domain)(), Task.model_validate(task).initial_state
    if initial is not None:
        environment.set_state(initial.initialization_data, initial.initialization_actions, [])
    for name, arguments in calls:
        result = environment.get_response(ToolCall(id="0", name=name, arguments=arguments, requestor="assistant"))
    return {"content": result.content, "is_error": result.error}


def evaluate(
    domain: str, task: dict[str, Any], dialogue: list[list[str]], calls: list[list[Any]], answered: bool
) -> dict[str, Any]:
    """Return the verdict of tau2's evaluator on a dialogue.

    Args:
        dialogue: role and text of each message. calls: name and arguments of each call that was made.
        answered: whether the agent ended the dialogue.
    """
    of_task = Task.model_validate(task)
    criteria, unjudged = of_task.evaluation_criteria, False
    if criteria is not None and criteria.nl_assertions and RewardType.NL_ASSERTION in criteria.reward_basis:
        criteria.reward_basis.remove(RewardType.NL_ASSERTION)
        unjudged = True
    messages: list[Any] = []
    for role, text in dialogue:
        kind = AssistantMessage if role == "assistant" else UserMessage
        messages.append(kind(role=role, content=text))
    for place, (name, arguments) in enumerate(calls):
        tool_call = ToolCall(id=str(place), name=name, arguments=arguments, requestor="assistant")
        messages.append(AssistantMessage(role="assistant", content=None, tool_calls=[tool_call]))
        messages.append(ToolMessage(role="tool", id=str(place), content="", requestor="assistant"))
    reason = TerminationReason.AGENT_STOP if answered else TerminationReason.MAX_STEPS
    times = {"start_time": "", "end_time": "", "duration": 0.0}
    run = SimulationRun(id="0", task_id=of_task.id, termination_reason=reason, messages=messages, **times)
    try:
        evaluation = evaluate_simulation(run, of_task, EvaluationType.ALL, False, domain, strict_replay=False)
    except Exception as error:  # an assertion about records that are not there
        return {"reward": 0.0, "tests": {}, "unjudged": unjudged, "info": f"the evaluator raised: {error}"}
    unsaid = [check.info for check in evaluation.communicate_checks or [] if not check.met]
    tests = {}
    for part, value in (evaluation.reward_breakdown or {}).items():
        lacks = f"not said: {', '.join(unsaid)}" if part == RewardType.COMMUNICATE else "not met"
        tests[part.value] = {"passed": value >= 1, "expected": "met", "got": "met" if value >= 1 else lacks}
    return {"reward": evaluation.reward, "tests": tests, "unjudged": unjudged, "info": str(evaluation.info)}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            from tau2.data_model.message import AssistantMessage, ToolCall, ToolMessage, UserMessage
            from tau2.data_model.simulation import SimulationRun, TerminationReason
            from tau2.data_model.tasks import RewardType, Task
            from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation
            from tau2.registry import registry

            function, arguments = json.loads(line)
            answer = {"result": globals()[function](**arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
