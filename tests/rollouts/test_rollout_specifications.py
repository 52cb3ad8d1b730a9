"""`--human spec`: the human reads a task's specification; critics, scores and the search for leaks its reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import InputError, UsageError
from sweet.humans.scripted import SERVED_NAME, ScriptedResponder
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.results.comparability import unfairness
from sweet.scoring.results.evaluation import find_evaluation
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.base import Message, Task
from sweet.tasks.registry import task_kind
from tests.humans.leaking import AGENT, BEHAVES, HUMAN, Leaky, agent, tasks

SPEC = "Each hour costs a fixed rate, there is a fixed charge on top, and the whole doubles from ten hours on."


def specified(folder: Path, *, but: int = 0) -> Path:
    """The tasks of `leaking`, each with a specification, except for the first few."""
    file = tasks(folder)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows = [row | ({} if number < but else {"specification": SPEC}) for number, row in enumerate(rows)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def played(run: Run, player: Leaky, file: Path, **changes: Any) -> list[dict[str, Any]]:
    with player.server().running() as url, agent().running() as agent_url:
        models = {"sim": HUMAN, "sim_url": [url], "agent": AGENT, "agent_url": [agent_url]}
        result = run_rollout(run, RolloutConfig(**{"tasks": str(file), "max_turns": 3, **models, **changes}), Silent())
    (artifact,) = result.artifacts
    return [json.loads(line) for line in run.file(artifact).read_text().splitlines()]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


def test_the_human_reads_the_specification_and_no_code(run: Run, tmp_path: Path) -> None:
    human = Leaky(0)
    rows = played(run, human, specified(tmp_path), human="spec")
    assert {prompt.hidden for prompt, _ in human.prompts} == {SPEC}
    assert {turn["content"] for row in rows for turn in row["dialogue_history"] if turn["role"] == "user"} >= {BEHAVES}
    (artifact,) = run.manifest().artifacts
    assert RolloutsMeta.of(artifact).human == "spec"
    for row in rows:
        task = Task.model_validate(row["task"])
        assert (task.hidden, task.specification) == (task.ground_truth, SPEC), "the critic reads the reference"
    scored = run_eval(run, EvalConfig(sandbox="unsafe"), Silent()).metrics
    assert scored.invalid_tasks == 0


def test_a_human_that_guesses_the_code_leaks_all_the_same(run: Run, tmp_path: Path) -> None:
    class Guessing(Leaky):
        def __call__(self, body: dict[str, Any]) -> Any:
            body["messages"][0]["content"] = body["messages"][0]["content"].replace(SPEC, reference)
            return super().__call__(body)

    file = specified(tmp_path)
    reference = json.loads(file.read_text().splitlines()[0])["ground_truth"].replace("\n", "\n    ")
    rows = played(run, Guessing(1), file, human="spec", num_tasks=1)
    turns = [turn for turn in rows[0]["dialogue_history"] if turn["role"] == "user"]
    assert [turn.get("withheld") for turn in turns] == [None, ["leaked"], ["leaked"]]


def test_the_prompt_can_be_read_back(tmp_path: Path) -> None:
    kind = task_kind("code")
    task = kind.load(str(specified(tmp_path)), "train")[0]
    said = [Message(role="user", content="Write it."), Message(role="assistant", content="What?")]
    text = kind.with_specifications().human_prompt(task, said)[0].content
    prompt = kind.prompts.read(text)
    assert (prompt.request, prompt.hidden, list(prompt.dialogue)) == (task.problem_description, SPEC, said)
    assert "finished function below" not in text
    assert task.ground_truth.splitlines()[1] not in text


def test_a_served_scripted_human_answers_it(tmp_path: Path) -> None:
    kind = task_kind("code")
    task = kind.load("micro", "train")[0]
    task = Task.model_validate(task.model_dump() | {"specification": SPEC})
    assert ScriptedResponder(kind, [task]).model == SERVED_NAME
    for one in (kind, kind.with_specifications()):
        prompt = kind.prompts.read(one.human_prompt(task, [])[0].content)
        assert (prompt.request, prompt.hidden) in ScriptedResponder(kind, [task])._tasks


@pytest.mark.parametrize(("texts", "expected"), [(("human",), "own"), (("human", "human_spec"), "other")])
def test_prompts_of_the_user_take_the_place_of_the_packaged_ones(
    tmp_path: Path, texts: tuple[str, ...], expected: str
) -> None:
    for name, head in zip(texts, ("own", "other"), strict=False):
        (tmp_path / f"{name}.txt").write_text(f"{head}\n{{request}}\n-\n{{reference}}\n-\n{{dialogue}}\n")
    kind = task_kind("code").with_prompts(tmp_path)
    assert kind.with_specifications().prompts.human.startswith(expected)
    assert kind.prompts.human.startswith("own")
    (tmp_path / "human_spec.txt").write_text("{request}")
    with pytest.raises(InputError, match=r"\{reference\}"):
        task_kind("code").with_prompts(tmp_path)


@pytest.mark.parametrize(
    ("changes", "what", "fix"),
    [
        ({"sim": "scripted", "sim_url": [], "tasks": "micro"}, "scripted human speaks from", "--sim MODEL"),
        ({}, "2 of 4 tasks have no specification: fee-0, fee-1.", "sweet data describe "),
    ],
)
def test_without_a_specification_to_read_it_is_refused(
    run: Run, tmp_path: Path, changes: dict[str, Any], what: str, fix: str
) -> None:
    with pytest.raises(UsageError) as error:
        played(run, Leaky(0), specified(tmp_path, but=2), **{"human": "spec", **changes})
    assert what in error.value.what
    assert fix in str(error.value.fix)
    assert run.manifest().artifacts == []


def test_pages_are_seen_and_not_read(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="html")
    with pytest.raises(UsageError, match="sees pages"):
        run_rollout(run, RolloutConfig(task="html", agent="scripted", human="spec", tasks="pages"), Silent())


def test_a_specification_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tasks(tmp_path)
    row = json.loads(file.read_text().splitlines()[0]) | {"specification": ["x"]}
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match="'specification' must be text"):
        task_kind("code").load(str(file), "train")


def test_tasks_without_it_are_recorded_without_it() -> None:
    task = Task(id="t", problem_description="Write it.", ground_truth="def f(): return 1")
    assert "specification" not in task.model_dump()


def test_comparisons_name_what_the_human_knew(tmp_path: Path) -> None:
    file, sides = specified(tmp_path), []
    for human in ("code", "spec"):
        run = Run.create(tmp_path / human, task="code")
        played(run, Leaky(0), file, human=human)
        run_eval(run, EvalConfig(sandbox="unsafe"), Silent())
        sides.append(find_evaluation(run.path, needed_by="compare"))
    values = sides[0].values(), sides[1].values()
    caveats = {one.about: one.text for one in unfairness(sides[0], sides[1], values, sorted(values[0].ids))}
    assert caveats["human"] == "What the human knows the tasks by: code in A, spec in B."
