"""The metrics of `sweet rollout`, and the work that its plan counts."""

from __future__ import annotations

from typing import Annotated

from sweet.stages.leaks import LeakMetrics
from sweet.stages.record import OMITTED_IF_NONE, Flat, Record


class ChoiceMetrics(Record):
    """The choices among several candidates (sweet rollout --best-of); its keys are absent without it."""

    candidates: int
    """with --best-of: replies sampled at all turns"""
    unjudged_candidates: int
    """with --best-of: of these, replies that the judge gave no value"""
    unjudged_turns: int
    """with --best-of: turns at which it gave none a value; the first candidate was taken"""
    mean_gain: float | None
    """with --best-of: mean over the turns of the chosen reply's advantage minus the mean of the candidates"""


class ThoughtMetrics(Record):
    """The thoughts of the agent; the keys are absent where it had none."""

    thought_turns: int
    """with an agent that thinks: turns at which it thought before its reply"""
    thought_tokens: int
    """with an agent that thinks: of completion_tokens, those of thoughts, as far as servers report them or they can be
    estimated"""
    unfinished_thoughts: int
    """with an agent that thinks: turns at which it thought until its tokens were spent, and said nothing"""


class ToolMetrics(Record):
    """The calls of tools; the keys are absent where the agent made none."""

    tool_calls: int
    """with tools: calls that the agent made"""
    tool_errors: int
    """with tools: of these, calls that could not be made, or failed"""


class HumanDialogues(Record):
    """The dialogues of one of several humans."""

    dialogues: int
    """finished dialogues with this human"""
    answered: int
    """of these, dialogues in which the agent answered"""
    faults: int
    """of these, dialogues that ended by a fault of this human"""
    turns: int
    """turns of the agent in them"""


class RolloutMetrics(Record):
    """Of all dialogues of the artifact, those of earlier calls included."""

    episodes: int
    """finished dialogues"""
    turns: int
    """turns of the agent"""
    prompt_tokens: int
    """tokens that the agent read"""
    completion_tokens: int
    """tokens that the agent wrote, with --best-of those of all candidates"""
    human_prompt_tokens: int
    """tokens that the simulated human read"""
    human_completion_tokens: int
    """tokens that the simulated human wrote"""
    retries: int
    """requests that were sent again"""
    outcomes: dict[str, int]
    """dialogues by how they ended"""
    human_faults: dict[str, int]
    """dialogues that ended by a fault of the simulated human, by the fault"""
    humans: dict[str, HumanDialogues] | None = OMITTED_IF_NONE
    """with several humans or a persona: dialogues, answers, faults and turns, by human"""
    leaks: Annotated[LeakMetrics | None, Flat()] = None
    """Leaks of a model that plays the human."""
    failed: int
    """dialogues of this call that ended by an error; the same command goes on with them"""
    failures: dict[str, int] | None = OMITTED_IF_NONE
    """the commonest reasons of these errors, with their numbers; absent without any"""
    choices: Annotated[ChoiceMetrics | None, Flat()] = None
    """The choices among several candidates."""
    thoughts: Annotated[ThoughtMetrics | None, Flat()] = None
    """The thoughts of the agent."""
    tools: Annotated[ToolMetrics | None, Flat()] = None
    """The calls of tools."""
    cost: float | None = OMITTED_IF_NONE
    """with --prices: price of all their tokens, those of a judge, of withheld replies and of failed dialogues included;
    absent without"""
    seconds: float
    """duration of this call"""


class RolloutWork(Record):
    """The work of a rollout; a number that no earlier rollout determines is null."""

    tasks: int
    """tasks that are played"""
    dialogues: int
    """dialogues of the whole rollout"""
    missing: int
    """dialogues that the run does not have yet; all that follows is of these"""
    turns: int | None
    """turns of the agent"""
    tokens_read: int | None
    """tokens that the agent reads"""
    tokens_written: int | None
    """tokens that the agent writes, with --best-of those of all candidates"""
    tokens_judged: int | None = None
    """tokens that the judge reads (--best-of)"""
    human_tokens_read: int | None
    """tokens that the simulated human reads"""
    human_tokens_written: int | None
    """tokens that the simulated human writes"""


class ServeMetrics(Record):
    """The metrics of `sweet serve-sim`."""

    url: str
    """address of the server, printed as soon as it answers"""
