"""The metrics of `sweet train`, and its plan."""

from __future__ import annotations

from pydantic import Field

from sweet.json_value import JsonValue
from sweet.scoring.results.metrics import ComparedMetric
from sweet.stages.record import OMITTED_IF_NONE, AnyRate, Record


class Usage(Record):
    """What was played in a round, evaluations included."""

    dialogues: int = 0
    """dialogues played"""
    prompt_tokens: int = 0
    """tokens that the agent read"""
    completion_tokens: int = 0
    """tokens that the agent wrote"""
    human_prompt_tokens: int = 0
    """tokens that the simulated human read"""
    human_completion_tokens: int = 0
    """tokens that the simulated human wrote"""
    seconds: float = 0.0
    """duration of all its steps"""


class LoopRound(Record):
    """One round, and the evaluation of its actor."""

    round: int
    """number of the round; 0 is the starting agent"""
    agent: str
    """the agent that is evaluated: the starting model, or the id of an actor"""
    test: AnyRate
    """its rate on test tasks, with interval"""
    validation: AnyRate | None = OMITTED_IF_NONE
    """the same on validation tasks, where they are played"""
    leak_rate: AnyRate | None = OMITTED_IF_NONE
    """share of its dialogues on test tasks in which the human leaked the solution, where a model plays it"""
    usage: Usage
    """what was played in the round"""
    artifacts: dict[str, str] = Field(default_factory=dict)
    """the ids of what its steps made, by step: its scores on test tasks are those of eval test"""
    cost: float | None = OMITTED_IF_NONE
    """price of all tokens of its steps, where the recipe has prices"""
    cost_per_solved_task: float | None = OMITTED_IF_NONE
    """what its dialogues on test tasks cost for each task that one of them solved; absent without prices, and where
    none was solved"""


class LoopMetrics(Record):
    algorithm: str
    """the credit rule that was learned by"""
    metric: str
    """the rate of the evaluations: success_rate, or that of the kind of task"""
    rounds: list[LoopRound]
    """each round: its agent, test and validation with intervals, dialogues, tokens, seconds, cost"""
    best: str
    """the agent that is kept: the id of the best actor, or the starting model where none is better"""
    best_path: str | None
    """its directory; null for the starting model"""
    before: AnyRate
    """rate of the starting agent on test tasks, with interval"""
    after: AnyRate
    """rate of the agent that is kept on the same tasks, with interval"""
    paired: ComparedMetric | None = OMITTED_IF_NONE
    """the kept agent (b) against the starting agent (a) on the test tasks, paired by task; absent where it is kept"""
    ended_early: bool
    """whether it ended before the last round, because the actor no longer improved on validation tasks"""
    steps: dict[str, float]
    """seconds of each step"""
    seconds: float
    """seconds of all steps, those of earlier calls included"""
    cost: float | None = OMITTED_IF_NONE
    """price of all tokens of the run, failed and repeated work included: what --max-cost limits; where the recipe has
    prices"""


class DemoMetrics(LoopMetrics):
    success_before: AnyRate
    """share of unseen tasks solved by the packaged agent, with interval"""
    success_after: AnyRate
    """share of the same tasks solved by the trained agent, with interval"""


class PlannedStep(Record):
    """A step of the plan."""

    step: str
    """round and stage"""
    status: str
    """done, next or to do"""
    work: dict[str, JsonValue] | None = None
    """what `--dry-run` of the stage plans, where its inputs exist"""


class CheckedNeed(Record):
    """What steps that are not finished need."""

    need: str
    """model, engine, memory, scorer or server"""
    steps: list[str]
    """the steps that need it"""
    status: str
    """ok, missing, or unknown"""
    found: str
    """what there is, or what is wrong"""
    fix: str | None
    """what to do where it is missing"""


class LoopPlan(Record):
    """What `sweet train` would do."""

    steps: list[PlannedStep]
    """every step, if it does not end early"""
    done: int
    """finished steps"""
    missing: int
    """steps that are not finished"""
    repeated: list[str]
    """finished steps that changed settings would repeat"""
    recipe: str
    """the recipe that the options of the call override"""
    changed: list[str]
    """settings that differ from those of the run; where there is none yet from those of the recipe"""
    config: dict[str, JsonValue]
    """every setting that decides the outcome, as table.option, as the first step of the table uses it"""
    needs: list[CheckedNeed] = Field(default_factory=list)
    """what the steps that are not finished need, and what of it is missing"""
