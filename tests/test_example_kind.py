"""A kind of task from another package through all stages, without anything in `sweet` that knows it."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sweet_sql.databases import SchemaError, databases
from sweet_sql.kind import Prompts, SqlKind
from sweet_sql.scorer import SqlScorer, orders, query_in

from sweet.cli.app import run
from sweet.errors import InputError, UsageError
from sweet.humans.asking import LLMHuman
from sweet.humans.scripted import ScriptedResponder
from sweet.sandbox.program import Limits
from sweet.sandbox.tiers import open_sandbox
from sweet.tasks.base import NO_ANSWER, Message, Task
from sweet.tasks.scores import Verdict
from tests.packages import EXAMPLE, register
from tests.results.page_data import opened
from tests.rollouts.complying import serving

SCHEMA = "CREATE TABLE t (id, name, price); INSERT INTO t VALUES (1, 'a', 0.1), (2, NULL, 0.2), (3, 'a', 0.1);"


@pytest.fixture(scope="module")
def scorer() -> Iterator[SqlScorer]:
    with open_sandbox("auto", 1, Limits(call_seconds=1.0)) as box:
        yield SqlScorer(box, 1e-9)


def verdict(scorer: SqlScorer, reference: str, answer: str) -> Verdict:
    tests = {"rows": SCHEMA, "none": "CREATE TABLE t (id, name, price);"}
    task = Task(id="t", problem_description="?", ground_truth=reference, test_cases=tests)
    (found,) = scorer.verdicts([(task, answer)])
    return found


@pytest.mark.parametrize(
    ("reference", "answer", "passed"),
    [
        ("SELECT id FROM t", "SELECT id FROM t ORDER BY id DESC", 2),
        ("SELECT id FROM t ORDER BY id", "SELECT id FROM t ORDER BY id DESC", 1),
        ("SELECT id FROM (SELECT id FROM t ORDER BY id)", "SELECT id FROM t ORDER BY id DESC", 2),
        ("SELECT name FROM t", "SELECT DISTINCT name FROM t", 1),
        ("SELECT name FROM t WHERE id < 3", "SELECT name FROM t WHERE id < 3 ORDER BY id DESC", 2),
        ("SELECT name FROM t WHERE name IS NULL", "SELECT coalesce(name, '') FROM t WHERE id = 2", 1),
        ("SELECT sum(price) FROM t WHERE id < 3", "SELECT 0.3 FROM t WHERE id = 1", 1),
        ("SELECT id, name FROM t", "SELECT name, id FROM t", 1),
        ("SELECT id FROM t", "```sql\nSELECT id AS x FROM t;\n```\nThis lists all.", 2),
        ("SELECT id FROM t", "DELETE FROM t", 1),
    ],
)
def test_result_sets(scorer: SqlScorer, reference: str, answer: str, passed: int) -> None:
    found = verdict(scorer, reference, answer)
    assert (found.passed, found.total, found.reward) == (passed, 2, passed / 2)
    assert found.outcome == ("passed" if passed == 2 else "failed")


@pytest.mark.parametrize(
    ("answer", "outcome", "why"),
    [
        (NO_ANSWER, "no_answer", "no answer"),
        ("SELEC id", "error", "syntax error"),
        ("SELECT id FROM t; DROP TABLE t", "error", "one statement at a time"),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT count(*) FROM n", "timeout", "timeout"),
        ("ATTACH '/etc/passwd' AS other", "error", "database"),
    ],
)
def test_queries_without_rows(scorer: SqlScorer, answer: str, outcome: str, why: str) -> None:
    found = verdict(scorer, "SELECT id FROM t WHERE id > 0", answer)
    assert found.outcome == outcome
    assert why in found.detail["why"]


def test_a_reference_that_fails_makes_its_task_invalid(scorer: SqlScorer) -> None:
    found = verdict(scorer, "SELECT no_such FROM t", "SELECT id FROM t")
    assert (found.reward, found.outcome) == (None, "invalid")


def test_queries_that_order_their_rows() -> None:
    assert orders("SELECT a FROM t order  by a")
    assert not orders("SELECT a, 'order by' FROM (SELECT a FROM t ORDER BY (a)) -- ORDER BY a")
    assert query_in("Here:\n```\nSELECT 1\n```") == "SELECT 1"


@pytest.mark.parametrize("schema", [None, {}, {"t": {}}, {"t": {"a b": "key"}}, {"t": {"a": 3}}, {"t": {"a": [[1]]}}])
def test_invalid_schemas_are_refused(schema: object) -> None:
    with pytest.raises(SchemaError):
        databases(schema, [2])


def test_an_invalid_row_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"problem_description": "p", "ground_truth": "SELECT 1"}\n')
    with pytest.raises(InputError, match=r"no 'schema'.*line 1"):
        SqlKind().load(str(file), "train")
    with pytest.raises(UsageError, match="no split 'tset'"):
        SqlKind().load("shop", "tset")


def test_the_scripted_human_can_answer_as_a_model() -> None:
    kind = SqlKind()
    task = kind.load("shop", "train")[0]
    said = [Message(role="user", content=task.problem_description), Message(role="assistant", content="Which rows?")]
    assert Prompts.read(kind.human_prompt(task, said)[0].content).dialogue == tuple(said)
    reply = asyncio.run(LLMHuman(ScriptedResponder(kind, [task]), kind).reply(task, said))
    assert reply.text == "Only rows where status is paid count."


def test_the_scripted_human_is_served(sql: Any) -> None:
    kind = SqlKind()
    play = ("--task", "sql", "--split", "test", "--agent", "scripted", "--temperature", "0")
    with serving(ScriptedResponder(kind, kind.load("shop", "test"))) as url:
        sql("rollout", "runs/sql", *play, "--sim", "scripted-human", "--sim-url", url)
    assert sql("eval", "runs/sql")["metrics"]["success_rate"] == 1


@pytest.fixture
def sql(workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the program with the example installed, and return the object that a command prints."""
    for folder in register(EXAMPLE, workplace / "site"):
        monkeypatch.syspath_prepend(folder)

    def call(*words: str) -> Any:
        code = run([*words, "--json"])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return json.loads(captured.out)

    return call


def test_the_whole_pipeline(sql: Any) -> None:
    play = ("rollout", "runs/sql", "--task", "sql", "--agent", "scripted")
    played = sql(*play, "--samples", "4")["metrics"]
    assert (played["episodes"], played["failed"]) == (32, 0)
    scored = sql("eval", "runs/sql")["metrics"]
    assert 0 < scored["success_rate"] < scored["tests_passed"] < 1
    assert scored["scorer"] == "result-sets"
    assert scored["sandbox"] != "unsafe"
    assert sql("label", "runs/sql")["metrics"]["pairs"] > 3

    # The packaged agent learns: what comes of it is nothing to look at, that it goes through is.
    small = ("--model", "micro", "--limit", "2", "--epochs", "1", "--device", "cpu")
    assert sql("train-critic", "runs/sql", *small)["metrics"]["steps"] >= 1
    few = ("--agent", "micro", "--candidates", "4", "--max-tokens", "12", "--limit", "2", "--device", "cpu")
    assert sql("rank", "runs/sql", *few)["metrics"]["turns"] == 2
    assert sql("pair", "runs/sql", "--pairs", "1")["metrics"]["pairs"] >= 1
    assert sql("train-actor", "runs/sql", *small)["metrics"]["steps"] >= 1
    report = sql("status", "runs/sql")
    assert report["next"] == ["sweet rollout runs/sql --agent runs/sql/actor/actor-1 --task sql --split test"]

    # Another run of the same tasks to compare with, and the critic to choose by.
    sql(*("rollout", "runs/best"), *play[2:], "--samples", "1", "--temperature", "0")
    assert sql("eval", "runs/best", "--compare", "runs/sql")["metrics"]["success_rate"] == 1
    assert "critic-1" in str(sql("eval", "runs/sql", "--best-of-by", "critic")["metrics"]["best_of"])

    manifest = json.loads(Path("runs/sql/manifest.json").read_text())
    assert {attempt["environment"]["kind"] for attempt in manifest["attempts"]} == {"sweet-sql 0.1.0"}


def test_view_import_and_refused_options(
    sql: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sql("rollout", "runs/sql", "--task", "sql", "--agent", "scripted", "--split", "test", "--temperature", "0")
    sql("eval", "runs/sql", "--tolerance", "0")
    shown = sql("view", "runs/sql", "--id", "sql-test-late")
    assert shown["trajectory"]["score"]["total"] == 4
    first = next(iter(shown["trajectory"]["score"]["detail"]["tests"].values()))
    assert first == {"passed": True, "expected": "[]", "got": "[]"}
    assert run(["view", "runs/sql", "--id", "sql-test-late", "--hidden"]) == 0
    output = capsys.readouterr().out
    assert "INSERT INTO loans" in " ".join(output.split())
    assert "ORDER BY days, id" in output
    assert run(["view", "runs/sql", "--html", "page.html"]) == 0
    page = re.sub(r"</?span[^>]*>", "", opened(Path("page.html").read_text()))
    assert "ORDER BY days, id" in page

    assert run(["data", "export", "runs/sql", "--out", "rows.jsonl"]) == 0
    capsys.readouterr()
    assert sql("data", "import", "rows.jsonl", "runs/again", "--task", "sql")["metrics"]["scores"] == 4
    assert sql("eval", "runs/again")["metrics"]["success_rate"] == 1

    assert run(["eval", "runs/sql", "--similarity", "clip"]) == 2
    assert "does not apply to tasks of the kind sql" in capsys.readouterr().err
    prompts = Path("prompts")
    shutil.copytree(EXAMPLE / "sweet_sql" / "texts", prompts)
    (prompts / "agent.txt").write_text("Be brief.")
    sql("rollout", "runs/brief", "--task", "sql", "--agent", "scripted", "--prompts", "prompts", "--num-tasks", "1")

    # Without its package a run can still be shown.
    monkeypatch.setattr("sweet.plugins.entry_points", lambda group: ())
    assert run(["view", "runs/sql", "--id", "sql-test-late"]) == 0
    assert run(["eval", "runs/sql"]) == 2
    assert "no kind of task called 'sql'" in capsys.readouterr().err
