"""The warnings of a comparison, one by one: each is there where something differs, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.runs.run import Run
from sweet.scoring.results.compare import CompareConfig, measure_comparison, run_compare
from sweet.scoring.results.evaluation import Evaluation
from tests.scoring.evaluations import evaluate, grade, make_task, play
from tests.stages.learn_runs import put

REWARDS = {"t1": [1.0], "t2": [0.5], "t3": [0.0]}


def warnings(a: Evaluation, b: Evaluation) -> dict[str, dict[str, Any]]:
    found = measure_comparison(a, b).as_json()["warnings"]
    assert len({warning["about"] for warning in found}) == len(found)
    return {warning["about"]: warning for warning in found}


def test_nothing_is_said_where_nothing_but_the_agent_differs(tmp_path: Path) -> None:
    a = evaluate(tmp_path / "a", REWARDS)
    b = evaluate(tmp_path / "b", REWARDS, agent="other")
    assert warnings(a, b) == {}


@pytest.mark.parametrize(
    ("settings", "about", "text"),
    [
        ({"max_turns": 5}, "max_turns", "Turn limit: 10 in A, 5 in B."),
        ({"temperature": 0.5}, "temperature", "Temperature: 1.0 in A, 0.5 in B."),
        ({"top_p": 0.5}, "top_p", "Nucleus (top-p): 1.0 in A, 0.5 in B."),
        ({"max_tokens": 64}, "max_tokens", "Tokens per reply: 1024 in A, 64 in B."),
        ({"token_limit": 640}, "token_limit", "Tokens per dialogue: none in A, 640 in B."),
        ({"seed": 7}, "seed", "Seed: 0 in A, 7 in B."),
        ({"protocol": "upstream"}, "protocol", "Protocol: paper in A, upstream in B."),
        ({"sim": "big"}, "sim", "Simulated human: scripted in A, big in B."),
        ({"rollouts_meta": {"prompts_digest": "abc"}}, "prompts", "Prompts: packaged in A, abc in B."),
        ({"scores_meta": {"tolerance": 0.1}}, "tolerance", "The scorer's tolerance: 1e-09 in A, 0.1 in B."),
        ({"scores_meta": {"sandbox": "unsafe"}}, "sandbox", "Sandbox: bwrap in A, unsafe in B."),
        ({"scores_meta": {"scorer": "upstream"}}, "scorer", "Scorer: strict in A, upstream in B."),
        (
            {"metrics": {"faults": 2}},
            "faults",
            "Dialogues that ended by a fault and count as unsolved: 0 in A, 2 in B.",
        ),
    ],
)
def test_a_setting_that_differs(tmp_path: Path, settings: dict[str, Any], about: str, text: str) -> None:
    a = evaluate(tmp_path / "a", REWARDS)
    b = evaluate(tmp_path / "b", REWARDS, **settings)
    found = warnings(a, b)
    assert [warning["text"] for warning in found.values()] == [text]
    assert list(found) == [about]
    swapped = warnings(b, a)[about]
    assert (swapped["a"], swapped["b"]) == (found[about]["b"], found[about]["a"])


def test_how_often_a_human_that_leaks_is_asked(tmp_path: Path) -> None:
    sides = [evaluate(tmp_path / str(tries), REWARDS, sim="big", human_tries=tries) for tries in (1, 8)]
    found = warnings(sides[0], sides[1])
    assert [warning["text"] for warning in found.values()] == [
        "Tries of a human whose reply is withheld: 1 in A, 8 in B."
    ]


def test_the_human_as_its_server_calls_it(tmp_path: Path) -> None:
    a, b = evaluate(tmp_path / "a", REWARDS, sim="big"), evaluate(tmp_path / "b", REWARDS, sim="big")
    b.manifest.attempts[0].environment["human"] = "big-quantized"
    assert warnings(a, b)["sim"]["b"] == "big (served as big-quantized)"


@pytest.mark.parametrize(("attempt", "about"), [(0, "sweet_rollout"), (1, "sweet_eval")])
def test_versions_of_sweet(tmp_path: Path, attempt: int, about: str) -> None:
    a, b = evaluate(tmp_path / "a", REWARDS), evaluate(tmp_path / "b", REWARDS)
    b.manifest.attempts[attempt].environment["sweet"] = "9.0"
    assert list(warnings(a, b)) == [about]
    del b.manifest.attempts[attempt].environment["sweet"]
    assert warnings(a, b) == {}, "a manifest that does not tell is not another version"


def test_the_same_tasks_under_another_name(tmp_path: Path) -> None:
    a = evaluate(tmp_path / "a", REWARDS)
    assert warnings(a, evaluate(tmp_path / "b", REWARDS, dataset="copy.jsonl", split="train")) == {}


def test_other_data_sets(tmp_path: Path) -> None:
    a = evaluate(tmp_path / "a", REWARDS)
    b = evaluate(tmp_path / "b", {**REWARDS, "t4": [1.0]}, dataset="copy.jsonl", split="train")
    found = warnings(a, b)
    assert list(found) == ["tasks", "split", "tasks_not_shared"]
    assert found["tasks"]["text"] == "Data set: micro in A, copy.jsonl in B."
    assert found["tasks_not_shared"]["text"] == "Tasks of one side only: 0 in A, 1 in B. They are excluded."


def test_tasks_of_the_same_id_with_another_text(tmp_path: Path) -> None:
    a = evaluate(tmp_path / "a", REWARDS)
    changed = [make_task("t1"), make_task("t2", "A price, rounded."), make_task("t3")]
    found = warnings(a, evaluate(tmp_path / "b", REWARDS, tasks=changed))
    assert list(found) == ["task_content"]
    assert found["task_content"]["text"] == "Tasks with the same id differ: t2."
    many = {f"t{i}": [1.0] for i in range(9)}
    others = [make_task(name, "Another price.") for name in many]
    text = warnings(evaluate(tmp_path / "c", many), evaluate(tmp_path / "d", many, tasks=others))["task_content"][
        "text"
    ]
    assert text == "Tasks with the same id differ: t0, t1, t2 and 6 more."


def test_invalid_tasks_and_dialogues_a_task(tmp_path: Path) -> None:
    a = evaluate(tmp_path / "a", {"t1": [1.0, 0.0], "t2": [0.0, 0.0], "t3": [1.0]})
    b = evaluate(tmp_path / "b", {"t1": [1.0], "t2": [None], "t3": [1.0]}, samples=2)
    found = warnings(a, b)
    assert found["invalid_tasks"]["text"] == "Invalid tasks, which count in no rate: 0 in A, 1 in B."
    assert found["samples"]["text"] == "Dialogues per task: 1–2 in A, 1 in B."
    assert (found["tasks_not_shared"]["a"], found["tasks_not_shared"]["b"]) == (1, 0)
    assert measure_comparison(a, b).as_json()["tasks"] == 2


def test_a_judge_that_chose_the_replies(tmp_path: Path) -> None:
    critic = {"best_of": 8, "judge": "critic", "critic": "critic-1", "informed": True}
    a, b = evaluate(tmp_path / "a", REWARDS), evaluate(tmp_path / "b", REWARDS, rollouts_meta=critic)
    text = "Choice of replies: one sample a turn in A, best of 8 by critic-1, which sees the solution in B."
    assert {key: found["text"] for key, found in warnings(a, b).items()} == {"best_of": text}
    chance = evaluate(tmp_path / "c", REWARDS, rollouts_meta={"best_of": 8, "judge": "random", "informed": False})
    assert warnings(chance, b)["best_of"]["a"] == "best of 8 by random"
    assert warnings(b, evaluate(tmp_path / "d", REWARDS, rollouts_meta=critic)) == {}


def test_stale_scores(tmp_path: Path) -> None:
    a, b = evaluate(tmp_path / "a", REWARDS), evaluate(tmp_path / "b", REWARDS)
    file = b.run.path / "rollouts" / "rollouts-1.jsonl"
    file.write_text(file.read_text() + "\n")
    found = warnings(a, b)["stale"]
    assert found["a"] is None
    assert found["text"].startswith("scores-1 of B is stale: its input rollouts-1 was changed")


def test_the_same_dialogues_scored_twice(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "code")
    rollouts = play(run, [make_task(name) for name in REWARDS])
    a, b = grade(run, rollouts, REWARDS), grade(run, rollouts, REWARDS)
    assert warnings(a, b)["same_dialogues"]["text"] == "Both are scores of the same dialogues, rollouts-1."


def test_dialogues_that_were_played_elsewhere(tmp_path: Path) -> None:
    a = evaluate(tmp_path / "a", REWARDS)
    run = Run.create(tmp_path / "b", "code")
    said = {"dialogue_history": [{"role": "user", "content": "A price."}], "answer": "1", "outcome": "answered"}
    rows = [{"id": name, "task": make_task(name).model_dump(mode="json"), **said} for name in REWARDS]
    rollouts = put(run, "data-import", "rollouts", rows, agent="imported", sim="imported", tasks="x.jsonl")
    found = warnings(a, grade(run, rollouts, REWARDS))
    assert "B were played" in found["played"]["text"]
    assert list(found) == ["tasks", "played"]


def change_kind(path: Path) -> Evaluation:
    return evaluate(path, REWARDS, kind="html", task="html", tasks=[make_task(name) for name in REWARDS])


def change_scorer(path: Path) -> Evaluation:
    return evaluate(path, REWARDS, scores_meta={"scorer": "upstream"})


@pytest.mark.parametrize(
    ("change", "about", "said", "fix"),
    [
        (change_kind, "kind", "tasks of the kind html, the other side of the kind code", "--allow-different"),
        (change_scorer, "scorer", "scored by upstream.* scored by strict", "--from rollouts-1 --scorer strict"),
    ],
)
def test_rewards_that_mean_other_things_are_refused(
    tmp_path: Path, change: Callable[[Path], Evaluation], about: str, said: str, fix: str
) -> None:
    a = change(tmp_path / "a").name
    b = evaluate(tmp_path / "b", REWARDS).name
    with pytest.raises(UsageError, match=said) as caught:
        run_compare(a, b, CompareConfig())
    assert fix in str(caught.value.fix)
    metrics = run_compare(a, b, CompareConfig(allow_different=True)).metrics.as_json()
    assert about in [warning["about"] for warning in metrics["warnings"]]
    assert metrics["figures"]["reward"]["ties"] == 3


def test_rewards_that_came_from_elsewhere_are_mended_by_scoring_them(tmp_path: Path) -> None:
    a = evaluate(tmp_path / "a", REWARDS)
    run = Run.create(tmp_path / "b", "code")
    rows = [{"id": "x", "task_id": "t1", "reward": 1.0, "passed": 0, "total": 0, "outcome": "passed"}]
    put(run, "data-import", "scores", rows, [play(run, [make_task("t1")])], scorer="imported")
    for one, other in ((a.run.path, run.path), (run.path, a.run.path)):
        with pytest.raises(UsageError) as caught:
            run_compare(one, other, CompareConfig())
        assert caught.value.fix == f"sweet eval {run.path} --from rollouts-1 --scorer strict --tolerance 1e-09"
