"""Exports: the layout that the published scripts require, the newest rewards, and that an import reads them back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sweet.datasets import exporting
from sweet.datasets.exporting import DataExportConfig, Export, export_lines, run_data_export
from sweet.errors import InputError, UsageError
from sweet.llm.thoughts import ALL_MARKS
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_system
from sweet.stages.base import Reporter, Silent, StageConfig
from sweet.tasks.trajectory import Trajectory
from tests.datasets.test_importing import take
from tests.datasets.test_published import row, write
from tests.learn.builders import build_trajectory
from tests.stages.heard import Heard
from tests.stages.learn_runs import make_agent, put

SILENT = Silent()


def exported(run: Run, reporter: Reporter = SILENT, **options: Any) -> list[dict[str, Any]]:
    return list(Export(run, DataExportConfig(**options), reporter).rows())


def test_a_second_import_is_added_to_the_first(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run = take(write(tmp_path / f"{name}.jsonl", [row(reward=1)]), tmp_path / "run")
    assert [r["id"] for r in exported(run)] == ["two-00000"]
    assert [r["id"] for r in exported(run, from_="rollouts-1")] == ["one-00000"]


class Rescored(StageConfig):
    pass


def test_an_export_joins_the_newest_scores(tmp_path: Path) -> None:
    run = take(write(tmp_path / "off.jsonl", [row(reward=0), row(), row(reward=0.5)]), tmp_path / "run")
    assert [r.get("reward") for r in exported(run)] == [0, None, 0.5]
    with run.attempt("eval", Rescored(), inputs=[run.artifact("rollouts-1")]) as attempt:
        draft = attempt.start_artifact("scores")
        with JsonlWriter(draft.path) as writer:
            for name, reward in (("off-00000", 1.0), ("off-00001", None), ("off-00002", None)):
                outcome = "passed" if reward else "invalid"
                writer.write(
                    {"id": name, "task_id": "t", "reward": reward, "passed": 2, "total": 2, "outcome": outcome}
                )
        attempt.finish_artifact(draft, rows=3)
    assert [r.get("reward") for r in exported(run)] == [1, None, None], "invalid in the newest scores"


def test_an_export_replaces_its_file_whole(tmp_path: Path) -> None:
    run = take(write(tmp_path / "off.jsonl", [row(reward=1), row()]), tmp_path / "run")
    out = tmp_path / "out.jsonl"
    out.write_text("before")
    result = run_data_export(run, DataExportConfig(out=out), Silent())
    assert (result.metrics.trajectories, result.metrics.out) == (2, str(out))
    assert out.read_bytes() == b"".join(export_lines(run, DataExportConfig(), Silent()))
    whole = out.read_bytes()
    path = run.file(run.artifact("rollouts-1"))
    path.write_bytes(path.read_bytes() + b"{broken\n")
    with pytest.raises(InputError):
        run_data_export(run, DataExportConfig(out=out), Silent())
    assert out.read_bytes() == whole
    assert sorted(p.name for p in tmp_path.iterdir()) == ["off.jsonl", "out.jsonl", "run"]
    for wrong in (tmp_path, tmp_path / "none" / "x.jsonl", None):
        with pytest.raises(UsageError):
            run_data_export(run, DataExportConfig(out=wrong), Silent())


def has_no_thought(text: str) -> bool:
    """Not what import puts apart. Hypothesis also draws texts that stand in the code, such as the marks of thoughts."""
    return not any(marks.closing in text for marks in ALL_MARKS)


TEXT = st.text(st.characters(codec="utf-8"), max_size=20).filter(has_no_thought)
EXTRA = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT | st.lists(TEXT, max_size=2)
TURN = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": TEXT},
    optional={"input": TEXT, "output": TEXT, "mood": EXTRA.filter(lambda value: value is not None)},
)
TASK = st.fixed_dictionaries(
    {
        "problem_description": TEXT.filter(bool),
        "ground_truth": TEXT.filter(bool),
        "test_cases": st.dictionaries(TEXT, TEXT, max_size=3),
    },
    optional={"hidden_information": TEXT.filter(bool), "level": st.integers(0, 9)},
)
ROW = st.fixed_dictionaries(
    {
        "task": TASK,
        "dialogue_history": st.lists(TURN, max_size=3).map(lambda turns: [{"role": "user", "content": "?"}, *turns]),
        "answer": TEXT,
    },
    optional={"reward": st.floats(-1, 1), "note": EXTRA.filter(lambda value: value is not None)},
)


def said(text: str) -> dict[str, Any]:
    task = {"problem_description": "0", "ground_truth": "0", "test_cases": {}}
    history = [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}]
    return {"task": task, "dialogue_history": history, "answer": ""}


@settings(max_examples=25, deadline=None)
@example(rows=[said("<th"), said("<think>")], named=False, as_list=False)
@given(rows=st.lists(ROW, min_size=1, max_size=4), named=st.booleans(), as_list=st.booleans())
def test_what_came_in_goes_out_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], named: bool, as_list: bool
) -> None:
    folder = tmp_path_factory.mktemp("round")
    if named:
        rows = [{"id": f"id {number}", **given} for number, given in enumerate(rows)]
    out = exported(take(write(folder / "in.jsonl", rows, as_list=as_list), folder / "run"))
    by_id = {found["id"]: found for found in out}
    assert len(out) == len(by_id) == len(rows)
    for number, given_row in enumerate(rows):
        found = by_id[given_row.get("id", f"in-{number:05d}")]
        assert {key: found[key] for key in given_row if key != "task"} == {
            key: value for key, value in given_row.items() if key != "task"
        }
        kept = {key: value for key, value in given_row["task"].items() if value != {}}
        assert {key: found["task"][key] for key in kept} == kept
    again = exported(take(write(folder / "again.jsonl", out), folder / "second"))
    assert json.dumps(again) == json.dumps(out), "an export can be imported unchanged"


# The published layout

SAMPLES, TASKS = 3, ("t-2", "t-10", "t-1")


def finished(tasks: tuple[str, ...] = TASKS) -> Iterator[Trajectory]:
    """Dialogues in an order in which they might have ended."""
    for sample in (1, 0, 2):
        for task in tasks[sample:] + tasks[:sample]:
            yield build_trajectory(f"{task}-s{sample}", turns=3, task=task, sample=sample, answer="code")


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_agent(tmp_path_factory.mktemp("models") / "agent")


def played(folder: Path, dialogues: Iterator[Trajectory], **meta: Any) -> Run:
    run = Run.create(folder / "run", task="code")
    put(run, "rollout", "rollouts", dialogues, tasks="toy", split="train", **meta)
    return run


def test_the_rows_are_blocks_of_the_same_tasks_in_the_same_order(tmp_path: Path) -> None:
    heard = Heard()
    rows = exported(played(tmp_path, finished(), agent="scripted"), heard)
    assert [(r["task"]["id"], r.get("sample", 0)) for r in rows] == [
        (task, sample) for sample in range(SAMPLES) for task in ("t-1", "t-2", "t-10")
    ]
    tasks = len(rows) // SAMPLES
    for i in range(len(rows) - tasks):
        assert rows[i]["task"] == rows[i + tasks]["task"]
    assert any("3 blocks, each with a dialogue of the same 3 tasks" in line for line in heard.said)


def test_imported_rows_keep_the_order_of_their_tasks(tmp_path: Path) -> None:
    rows = [
        row(id=f"{task}-{sample}", task={**row()["task"], "id": task})
        for sample in range(2)
        for task in ("b", "c", "a")
    ]
    assert [r["id"] for r in exported(take(write(tmp_path / "in.jsonl", rows), tmp_path / "run"))] == [
        r["id"] for r in rows
    ]


@pytest.mark.parametrize("incomplete", ["keep", "drop"])
def test_tasks_with_fewer_dialogues_are_in_no_block(tmp_path: Path, incomplete: str) -> None:
    dialogues = (one for one in finished() if one.id not in ("t-2-s1", "t-10-s0", "t-10-s2"))
    run = played(tmp_path, dialogues, agent="scripted")
    heard = Heard()
    out = tmp_path / "out.jsonl"
    result = run_data_export(run, DataExportConfig.model_validate({"out": out, "incomplete": incomplete}), heard)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    rest = ["t-2-s0", "t-2-s2", "t-10-s1"] if incomplete == "keep" else []
    assert [r["id"] for r in rows] == ["t-1-s0", "t-1-s1", "t-1-s2", *rest]
    metrics = result.metrics.as_json()
    assert (metrics["tasks"], metrics["samples"], metrics["incomplete"]) == (1, 3, 2)
    assert metrics["trajectories"] == len(rows)
    warning = heard.warnings[0]
    assert "With fewer than 3 dialogues: 2 tasks (t-2, t-10)" in warning
    assert ("dropped: 3 rows" if incomplete == "drop" else "after the blocks: 3 rows") in warning


def test_each_turn_of_the_agent_has_its_prompt_and_its_raw_reply(tmp_path: Path, agent: str) -> None:
    heard = Heard()
    run = played(tmp_path, finished(), agent=agent, agent_system="You are polite.")
    for found in exported(run, heard):
        history = found["dialogue_history"]
        assert [entry["role"] for entry in history] == ["user", "assistant"] * 3
        assert [set(entry) & {"input", "output"} for entry in history] == [set(), {"input", "output"}] * 3
        before = ""
        for index, entry in enumerate(history):
            if entry["role"] == "assistant":
                assert entry["input"].startswith(before)
                assert entry["input"].endswith(
                    f"user\n{history[index - 1]['content']}<|im_end|>\n<|im_start|>assistant\n"
                )
                assert entry["output"] == entry["content"]
                before = entry["input"] + entry["output"]
        opening = f"<|im_start|>system\nYou are polite.<|im_end|>\n<|im_start|>user\n{history[0]['content']}<|im_end|>"
        assert before.startswith(opening)
        assert found["agent_system"] == "You are polite."
    assert not heard.warnings


def test_an_import_of_an_export_is_unchanged(tmp_path: Path, agent: str) -> None:
    run = played(tmp_path, finished(), agent=agent, agent_system="You are polite.")
    out, again = tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    run_data_export(run, DataExportConfig(out=out), Silent())
    other = take(out, tmp_path / "other")
    run_data_export(other, DataExportConfig(out=again), Silent())
    assert again.read_bytes() == out.read_bytes()
    found = {one.id: one for one in read_jsonl(other.file(other.artifact("rollouts-1")), Trajectory)}
    for dialogue in read_jsonl(run.file(run.artifact("rollouts-1")), Trajectory):
        same = found[dialogue.id]
        assert same.agent_system == "You are polite."
        assert same.observation(3, None) == dialogue.observation(3, "You are polite.")


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ({"agent": "scripted"}, "was scripted"),
        ({}, "not recorded"),
        ({"agent": "org/served"}, "org/served is not a model on this machine"),
    ],
)
def test_without_a_tokenizer_the_prompts_are_missing(tmp_path: Path, meta: dict[str, str], why: str) -> None:
    run, heard = played(tmp_path, finished(), **meta), Heard()
    out = tmp_path / "out.jsonl"
    result = run_data_export(run, DataExportConfig(out=out), heard)
    assert result.metrics.without_input == 3 * SAMPLES * len(TASKS)
    (warning,) = heard.warnings
    assert why in warning
    assert "--tokenizer" in warning
    assert '"input"' not in out.read_text()


def test_a_named_tokenizer_renders_what_is_missing_and_keeps_what_is_there(tmp_path: Path) -> None:
    llama = make_agent(tmp_path / "llama", template="llama3")
    run = take(write(tmp_path / "in.jsonl", [row()]), tmp_path / "run")
    (found,) = exported(run, tokenizer=llama)
    _, first, _, second = found["dialogue_history"]
    assert first["input"] == "<prompt>"
    assert first["output"] == "I wonder. OUTPUT: Integers?"
    packaged = agent_system(run, run.artifact("rollouts-1"))
    assert second["input"].startswith(
        f"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{packaged}<|eot_id|>"
    )
    assert second["input"].endswith("Yes.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n")
    assert second["output"] == second["content"]
    assert "agent_system" not in found, "it is not known"
    with pytest.raises(UsageError, match="no model directory"):
        exported(run, tokenizer="./none")


def test_the_prompts_of_a_long_dialogue_do_not_grow_with_the_square_of_its_turns(
    tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "LONGEST_PROMPTS", 20_000)
    dialogue, heard = build_trajectory(turns=2), Heard()
    long = dialogue.model_copy(update={"dialogue_history": dialogue.dialogue_history * 500})
    (found,) = exported(played(tmp_path, iter([long]), agent=agent), heard)
    said = [turn for turn in found["dialogue_history"] if turn["role"] == "assistant"]
    inputs = [turn["input"] for turn in said if "input" in turn]
    assert len(said) == 1000
    assert 10 < len(inputs) < 200
    assert all("input" in turn for turn in said[: len(inputs)]), "the first prompts, without a gap"
    assert sum(map(len, inputs)) < 60_000
    (warning,) = heard.warnings
    assert f"{1000 - len(inputs)}, as those of a dialogue have more than 20,000 characters together" in warning


def test_a_dialogue_that_ends_with_the_human_is_named(tmp_path: Path) -> None:
    dialogue = build_trajectory(turns=2, outcome="agent_error")
    cut = dialogue.model_copy(update={"dialogue_history": dialogue.dialogue_history[:-1]})
    heard = Heard()
    exported(played(tmp_path, iter([cut]), agent="scripted"), heard)
    assert any("as a fault ended them: 1." in line for line in heard.warnings)


@pytest.mark.parametrize("thoughts", [None, "keep"])
def test_thoughts_are_exported_only_if_they_are_asked_for(tmp_path: Path, agent: str, thoughts: str | None) -> None:
    first = build_trajectory("t-1", turns=2)
    fields = {"thought": "I wonder.", "thought_tokens": 2, "token_ids": (1, 2, 3), "prompt_token_ids": (1,)}
    history = [first.dialogue_history[0], first.dialogue_history[1].model_copy(update=fields)]
    history += [first.dialogue_history[2], first.dialogue_history[3].model_copy(update={"token_ids": (4,)})]
    thinking = first.model_copy(update={"dialogue_history": tuple(history), "thoughts": thoughts})
    run = played(tmp_path, iter([thinking]), agent=agent)
    [plain], [whole] = exported(run), exported(run, include_thoughts=True)
    assert "wonder" not in json.dumps(plain)
    turn, last = plain["dialogue_history"][1::2]
    assert {"thought", "thought_tokens", "token_ids"}.isdisjoint(turn)
    assert ("prompt_token_ids" in turn) == (thoughts is None)
    assert last["token_ids"] == [4], "a reply without a thought keeps its ids"
    assert whole["dialogue_history"][1]["thought"] == "I wonder."
    assert whole["dialogue_history"][1]["token_ids"] == [1, 2, 3]
    file = tmp_path / "export.jsonl"
    file.write_bytes(b"".join(export_lines(run, DataExportConfig(include_thoughts=True), SILENT)))
    again = take(file, tmp_path / "again")
    [read] = read_jsonl(again.file(again.artifact("rollouts-1")), Trajectory)
    assert (read.dialogue_history[1].thought, read.thoughts) == ("I wonder.", thoughts)
