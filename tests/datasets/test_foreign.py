"""Dialogues in the files of other programs: results of verifiers, logs of inspect_ai. The samples below have the fields
that those programs wrote; tests/environments/test_verifiers.py imports what the library itself has just written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.datasets.foreign import format_of, read_inspect, read_verifiers
from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.datasets.published import read_trajectories
from sweet.errors import InputError, UsageError
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory

SAID = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is the capital of Peru?"},
    {"role": "assistant", "content": "Cusco"},
    {"role": "user", "content": "Are you sure?"},
    {"role": "assistant", "content": "Lima"},
]


def trace(**changes: Any) -> dict[str, Any]:
    """A trace of interface v1 with a visible part that is not the whole reply, which is a branch of its own."""
    raw = [{"role": "assistant", "content": "Hm. OUTPUT: Cusco", "reasoning_content": "Andes?"}, SAID[4]]
    nodes = [
        {"message": SAID[0], "sampled": False},
        {"message": SAID[1], "sampled": False, "parent": 0},
        {"message": raw[0], "sampled": True, "parent": 1},
        {"message": SAID[2], "sampled": False, "parent": 1},
        {"message": SAID[3], "sampled": False, "parent": 3},
        {"message": raw[1], "sampled": True, "parent": 4},
    ]
    data = {"idx": 0, "id": "peru", "prompt": SAID[1]["content"], "system_prompt": "Be brief.", "answer": "Lima"}
    rewards = {"right": {"score": 1.0, "weight": 0.5}, "short": {"score": 0.5, "weight": 1.0}}
    found = {"id": "abc", "task": {"type": "Task", "data": data}, "nodes": nodes, "rewards": rewards, "ok": True}
    return found | changes


def episodes(path: Path, *traces: Any) -> Path:
    path.write_text("".join(json.dumps({"id": "e", "traces": [one]}) + "\n" for one in traces))
    return path


def sample(**changes: Any) -> dict[str, Any]:
    scores = {"includes": {"value": "C", "answer": "Lima"}, "match": {"value": 0.25}}
    found = {"id": "peru", "epoch": 2, "input": SAID[1]["content"], "target": ["Lima"], "messages": SAID}
    return found | {"scores": scores, "metadata": {}} | changes


def log(path: Path, *samples: Any, indent: int | None = None) -> Path:
    head = {"version": 2, "status": "success", "eval": {"task": "capitals"}}
    path.write_text(json.dumps(head | {"samples": list(samples)}, indent=indent))
    return path


def imported(file: Path, run: Path, **options: Any) -> tuple[list[Trajectory], list[Score]]:
    made = Run.open(run_data_import(file, run, DataImportConfig(**options), Silent()).run)
    scores = made.file(made.artifact("scores-1"))
    return list(read_jsonl(made.file(made.artifact("rollouts-1")), Trajectory)), list(read_jsonl(scores, Score))


def test_a_trace_of_verifiers_is_a_dialogue(tmp_path: Path) -> None:
    file = episodes(tmp_path / "traces.jsonl", trace(), trace(id="def", rewards={}))
    assert format_of(file) == "verifiers"
    (first, second), scores = imported(file, tmp_path / "run")
    assert [turn.content for turn in first.dialogue_history] == [message["content"] for message in SAID[1:]]
    assert [first.dialogue_history[index].said for index in first.agent_turns] == ["Hm. OUTPUT: Cusco", "Lima"]
    assert first.dialogue_history[1].thought == "Andes?"
    assert (first.task.ground_truth, first.task_id, first.answer) == ("Lima", "peru", "Lima")
    assert (first.agent_system, first.sample, second.sample) == ("Be brief.", 0, 1)
    assert [(score.id, score.reward) for score in scores] == [("abc", 1.0)]


def test_a_failed_episode_is_a_fault(tmp_path: Path) -> None:
    failed = trace(ok=False, nodes=[], rewards={}, errors=[{"type": "ProviderError", "message": "404"}])
    played = trace(id="other")
    other = trace(agent={"name": "user", "trainable": False}, id="third")
    found = list(read_trajectories(episodes(tmp_path / "t.jsonl", failed, played, other), "auto"))
    assert [one.id for one in found] == ["abc", "other"], "an agent that is not trained is no dialogue"
    assert (found[0].outcome, found[0].error) == ("agent_error", "ProviderError: 404")
    assert len(found[0].dialogue_history) == 1


def test_results_of_verifiers_in_flat_rows(tmp_path: Path) -> None:
    row = {"example_id": 7, "prompt": SAID[:2], "completion": SAID[2:], "answer": "Lima", "reward": 0.5, "info": {}}
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
    (first, second), scores = imported(file, tmp_path / "run")
    assert (first.task_id, first.sample, second.sample, first.agent_system) == ("7", 0, 1, "Be brief.")
    assert [score.reward for score in scores] == [0.5, 0.5]
    file.write_text(json.dumps(row | {"prompt": SAID[:1], "completion": []}) + "\n")
    with pytest.raises(InputError, match="has no message"):
        list(read_verifiers(file))


@pytest.mark.parametrize("indent", [None, 2])
def test_a_log_of_inspect(tmp_path: Path, indent: int | None) -> None:
    reasoned = [{"type": "reasoning", "reasoning": "Andes?"}, {"type": "text", "text": "Lima"}]
    thoughtful = sample(id=3, messages=[*SAID[:4], {"role": "assistant", "content": reasoned}], epoch=1)
    file = log(tmp_path / "log.json", sample(), thoughtful, indent=indent)
    assert format_of(file) == "inspect"
    (first, second), scores = imported(file, tmp_path / "run")
    assert (first.id, first.task_id, first.sample, first.task.ground_truth) == ("peru-e2", "peru", 1, "Lima")
    assert [turn.content for turn in first.dialogue_history] == [message["content"] for message in SAID[1:]]
    assert (second.dialogue_history[-1].thought, second.answer) == ("Andes?", "Lima")
    assert [score.reward for score in scores] == [1.0, 1.0]
    _, scores = imported(file, tmp_path / "second", score="match")
    assert [score.reward for score in scores] == [0.25, 0.25]
    with pytest.raises(InputError, match="no score accuracy; it has: includes, match"):
        imported(file, tmp_path / "third", score="accuracy")


def test_a_sample_that_ended_in_an_error_has_no_score_of_any_name(tmp_path: Path) -> None:
    """As inspect_ai writes it where some samples may fail (`fail_on_error=False`)."""
    failed = sample(id="chad", messages=SAID[:2], scores={}, error={"message": "RuntimeError('server gone')"})
    (_, second), scores = imported(log(tmp_path / "log.json", sample(), failed), tmp_path / "run", score="match")
    assert (second.outcome, second.error, second.reward) == ("agent_error", "RuntimeError('server gone')", None)
    assert [score.reward for score in scores] == [0.25]


def test_an_archive_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    file = tmp_path / "log.eval"
    file.write_bytes(b"PK\x03\x04 archive")
    assert format_of(file) == "inspect"
    with pytest.raises(InputError, match="no JSON") as raised:
        list(read_inspect(file))
    assert "inspect log convert" in str(raised.value.fix)


CALLS = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": "f"}]}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"target": ""}, "no reference answer"),
        ({"messages": [SAID[1], {**CALLS, "tool_calls": [7]}]}, "no tool and no call of one"),
        ({"messages": [SAID[1], {**CALLS, "tool_calls": [{"id": "1"}]}]}, "tool_calls.0.name"),
        ({"messages": [SAID[1], {**CALLS, "tool_calls": "{"}]}, "dialogue_history.1: "),
        ({"messages": [SAID[1], {"role": "tool", "content": "x"}]}, "answers no call before it: None"),
        ({"messages": [SAID[1], CALLS, {"role": "tool", "content": "x", "tool_call_id": "2"}]}, "before it: '2'"),
        ({"messages": [SAID[1], CALLS, SAID[3], {"role": "tool", "content": "x", "tool_call_id": "1"}]}, "no call"),
        ({"messages": [SAID[2]]}, "does not begin"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "image": "x"}]}]}, "not text"),
        ({"messages": [{"role": "user", "content": 7}]}, "not text"),
        ({"messages": ["text"]}, "role None"),
    ],
)
def test_a_sample_that_is_no_dialogue_is_refused_with_its_number(
    tmp_path: Path, changes: dict[str, Any], what: str
) -> None:
    with pytest.raises(InputError, match=what) as raised:
        imported(log(tmp_path / "log.json", sample(), sample(id="2", **changes)), tmp_path / "run")
    assert "line 2" in str(raised.value.where)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "calls",
    [
        [{"id": "1", "function": "find", "arguments": {"of": "Peru"}}, {"id": "2", "function": "find"}],
        [
            {"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"of": "Peru"}'}},
            {"id": "2", "type": "function", "function": {"name": "find", "arguments": "{}"}},
        ],
        [json.dumps({"name": "find", "arguments": '{"of": "Peru"}'}), json.dumps({"name": "find"})],
    ],
    ids=["inspect_ai", "openai", "verifiers"],
)
def test_calls_of_tools_are_turns(tmp_path: Path, calls: list[Any]) -> None:
    named = isinstance(calls[0], dict)
    results = [
        {"role": "tool", "content": "Lima", **({"tool_call_id": "1"} if named else {})},
        {
            "role": "tool",
            "content": "of what?",
            "error": {"type": "parsing"},
            **({"tool_call_id": "2"} if named else {}),
        },
    ]
    messages = [SAID[1], {"role": "assistant", "content": None, "tool_calls": calls}, *results, SAID[4]]
    (found,), _ = imported(log(tmp_path / "log.json", sample(messages=messages)), tmp_path / "run")
    said = found.dialogue_history
    assert [turn.role for turn in said] == ["user", "assistant", "tool", "tool", "assistant"]
    made = said[1].tool_calls or ()
    assert [(call.name, json.loads(call.arguments)) for call in made] == [("find", {"of": "Peru"}), ("find", {})]
    assert [call.id for call in made] == [said[2].tool_call_id, said[3].tool_call_id]
    assert [turn.is_error for turn in said] == [None, None, None, True, None]
    assert (found.answer, found.agent_turns) == ("Lima", [1, 4])


def test_tools_of_a_published_row_are_read_as_other_programs_write_them(tmp_path: Path) -> None:
    function = {"name": "find", "description": "Find it.", "parameters": {"type": "object", "properties": {}}}
    row = {
        "task": {"problem_description": "Which?", "ground_truth": "Lima"},
        "dialogue_history": [SAID[1]],
        "tools": [{"type": "function", "function": function}],
    }
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row))
    (found,) = read_trajectories(file)
    assert [tool.model_dump() for tool in found.tools or ()] == [function]
    file.write_text(json.dumps(row | {"tools": "{"}))
    with pytest.raises(InputError, match="tools: "):
        list(read_trajectories(file))


@pytest.mark.parametrize("parent", [5, 9, -3, "x", True])
def test_a_trace_with_a_wrong_parent_ends(tmp_path: Path, parent: Any) -> None:
    broken = trace()
    broken["nodes"][5]["parent"] = parent
    file = episodes(tmp_path / "t.jsonl", broken)
    if parent in (5, 9, -3):
        with pytest.raises(InputError, match="parent of node 5"):
            list(read_verifiers(file))
    else:  # it is no number, so the node is the first one, and the agent's
        with pytest.raises(InputError, match="does not begin"):
            list(read_verifiers(file))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["traces", "nodes", "task", "rewards", "info", "errors", "messages", "scores", "target", "id", "epoch", "input"]


@given(key=st.sampled_from(KEYS), value=JSON)
def test_any_value_in_any_field_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any
) -> None:
    folder = tmp_path_factory.mktemp("any")
    files = [
        (episodes(folder / "traces.jsonl", trace(**{key: value})), "verifiers"),
        (log(folder / "log.json", sample(**{key: value})), "inspect"),
    ]
    for file, format in files:
        try:
            found = len(list(read_trajectories(file, format)))  # type: ignore[arg-type]
        except InputError as raised:
            error: InputError | None = raised
        else:
            error = None
        assert found <= 1 if error is None else str(file) in str(error.where)


def test_a_score_is_an_option_of_one_format(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="scores by name"):
        imported(episodes(tmp_path / "traces.jsonl", trace()), tmp_path / "run", score="match")


def test_the_format_of_other_files_is_the_published_one(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"task": {}}\n')
    (tmp_path / "b.json").write_text('[\n{"task": {}}]')
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").write_text("")
    assert {format_of(file) for file in tmp_path.iterdir()} == {"published"}
    for wrong in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError):
            format_of(wrong)
