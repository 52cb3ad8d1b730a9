"""Several judges on the same replies, and the metrics of a judge against the credit that tasks know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweet.errors import InputError, UsageError
from sweet.judges.control import CreditScorer
from sweet.learn.critic import AdvantageCritic
from sweet.learn.rows import Candidate, CandidateRow
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.ranking.config import RankConfig
from sweet.ranking.credit import credit_metrics
from sweet.ranking.metrics import RankMetrics
from sweet.ranking.stage import run_rank
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent, StageResult
from sweet.tasks.base import Fact, Message, Task
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory
from sweet.training.config import TrainCriticConfig
from sweet.training.stage import run_train_critic
from tests.learn.turns import asked_turn
from tests.stages.learn_runs import make_agent, make_dialogues, make_run, put, score

FACTS = (Fact(topic="rate", cues=("rate",), answer="It is 5 per hour.", line="return hours * 5"),)


class JudgedRun:
    """A run whose tasks have facts, with a critic and candidates by it."""

    def __init__(self, folder: Path) -> None:
        self.agent = make_agent(folder / "agent")
        self.run = Run.create(folder / "run", task="code")
        dialogues = [(with_facts(trajectory), reward) for trajectory, reward in make_dialogues()]
        meta: dict[str, Any] = {"agent": self.agent, "tasks": "toy", "split": "train", "max_turns": 3}
        rollouts = put(self.run, "rollout", "rollouts", [t for t, _ in dialogues], **meta)
        put(self.run, "eval", "scores", [score(t, reward) for t, reward in dialogues], [rollouts])
        run_label(self.run, LabelConfig(), Silent())
        run_train_critic(self.run, TrainCriticConfig(epochs=1, lr=1e-3), Silent())
        self.first = self.rank(candidates=4, fraction=0.3, max_tokens=8)

    def rank(self, **changes: Any) -> StageResult[RankMetrics]:
        return run_rank(self.run, RankConfig(**changes), Silent())

    def rows(self, result: StageResult[RankMetrics]) -> dict[tuple[str, int], CandidateRow]:
        return {row.key: row for row in read_jsonl(self.run.file(result.artifacts[0]), CandidateRow)}


def with_facts(trajectory: Trajectory) -> Trajectory:
    return trajectory.model_copy(update={"task": trajectory.task.model_copy(update={"facts": FACTS})})


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> JudgedRun:
    return JudgedRun(tmp_path_factory.mktemp("judges"))


def replies(row: CandidateRow) -> list[tuple[Any, ...]]:
    return [(c.text, c.token_ids, c.ended, c.logprobs) for c in (*row.candidates, row.taken) if c]


def values(row: CandidateRow) -> list[float]:
    return [c.advantage for c in (*row.candidates, row.taken) if c]


@pytest.mark.parametrize("judge", ["critic", "oracle", "random", "untrained"])
def test_every_judge_judges_the_same_replies(judged: JudgedRun, judge: str) -> None:
    before = judged.rows(judged.first)
    result = judged.rank(judge=judge, replies="candidates-1")
    after = judged.rows(result)
    assert after.keys() == before.keys()
    assert {key: replies(row) for key, row in after.items()} == {key: replies(row) for key, row in before.items()}
    assert {row.basis for row in after.values()} == {judge}
    meta = result.artifacts[0].meta
    assert (meta["agent"], meta["judge"], meta["replies"]) == (judged.agent, judge, "candidates-1")
    assert judged.run.input_of(result.artifacts[0], "rollouts").id == "rollouts-1"
    assert "agent_model" not in judged.run.manifest().attempts[-1].environment, "no model was asked for replies"
    if judge == "critic":
        assert all(values(row) == pytest.approx(values(before[key]), abs=1e-5) for key, row in after.items())
    else:
        assert any(values(row) != pytest.approx(values(before[key]), abs=1e-3) for key, row in after.items())


def test_the_upstream_protocol_reuses_the_recorded_sampler_log_probabilities(judged: JudgedRun) -> None:
    whole = judged.rank(candidates=4, fraction=0.3, max_tokens=8, protocol="upstream")
    again = judged.rank(replies=whole.artifacts[0].id, protocol="upstream")
    before, after = judged.rows(whole), judged.rows(again)
    for key, row in after.items():
        assert all(c.reference == pytest.approx(c.reply.mean_logprob, abs=1e-6) for c in row.candidates)
        assert values(row) == pytest.approx(values(before[key]), abs=1e-5)


def test_the_untrained_judge_scores_how_much_likelier_the_reference_makes_a_reply(judged: JudgedRun) -> None:
    tokenizer, model = load_tokenizer(judged.agent), load_model(judged.agent, "cpu")
    result = judged.rank(judge="untrained", replies="candidates-1")
    assert result.artifacts[0].meta["reference"] == judged.agent
    uninformed = AdvantageCritic(model, model, tokenizer, informed=False)
    informed = AdvantageCritic(model, model, tokenizer)
    dialogues = {t.id: t for t, _ in make_dialogues()}
    for key, row in judged.rows(result).items():
        given = [one.reply for one in row.candidates]
        turn = asked_turn(row.observation, dialogues[key[0]].task.hidden, given, turn=row.turn)
        with_c, without = (critic.judge([turn])[0] for critic in (informed, uninformed))
        for one, a, b in zip(row.candidates, with_c, without, strict=True):
            assert a.logprob is not None
            assert b.logprob is not None
            assert one.advantage == pytest.approx(a.logprob - b.logprob, abs=1e-4)


def test_the_oracle_scores_replies_with_the_tasks_credit(judged: JudgedRun) -> None:
    result = judged.rank(judge="oracle", replies="candidates-1")
    scorer = CreditScorer(task_kind("code"), 3)
    dialogues = {t.id: t for t, _ in make_dialogues()}
    for row in judged.rows(result).values():
        task = with_facts(dialogues[row.trajectory_id]).task
        known = scorer.score(task, row.observation, [c.reply for c in row.candidates])
        worth = [credit.value for credit in known if credit]
        assert [c.score for c in row.candidates] == worth
        assert sum(c.advantage for c in row.candidates) == pytest.approx(0, abs=1e-5)
        assert row.taken is not None
        assert row.taken.advantage == pytest.approx((row.taken.score or 0) - sum(worth) / len(worth), abs=1e-5)
    told, first = result.metrics.known, judged.first.metrics.known
    assert (told.agreement_by_kind or {}).keys() == (first.agreement_by_kind or {}).keys()
    assert told.couples == 0 or (told.agreement is not None and told.agreement.value == 1)


def test_the_random_judge_depends_only_on_seed_turn_and_text(judged: JudgedRun) -> None:
    one, again, other = (
        judged.rows(judged.rank(judge="random", replies="candidates-1", seed=seed, concurrency=n))
        for seed, n in ((0, 64), (0, 1), (1, 64))
    )
    assert {k: values(row) for k, row in one.items()} == {k: values(row) for k, row in again.items()}
    assert all(values(row) != values(other[key]) for key, row in one.items())
    drawn = {(key, c.text): c.advantage for key, row in one.items() for c in row.candidates}
    assert all(c.advantage == drawn[key, c.text] for key, row in one.items() for c in row.candidates)
    assert len(set(drawn.values())) == len(drawn)
    assert all(-1 <= value <= 1 for value in drawn.values())


def test_candidates_of_different_judges_do_not_make_each_other_stale(tmp_path: Path) -> None:
    judged = JudgedRun(tmp_path)
    judges = ("oracle", "random", "critic")
    made = [judged.first, *(judged.rank(judge=judge, replies="candidates-1", seed=1) for judge in judges)]
    pairs = put(judged.run, "pair", "pairs", [], [made[1].artifacts[0]])
    assert {judged.run.stale(artifact) for artifact in (*(result.artifacts[0] for result in made), pairs)} == {None}
    first = judged.rank(candidates=4, fraction=0.4, max_tokens=8)
    assert f"{first.artifacts[0].id} is newer" in str(judged.run.stale(made[1].artifacts[0]))


def test_an_interrupted_judging_of_given_replies_resumes(judged: JudgedRun) -> None:
    first = judged.rank(judge="random", replies="candidates-1", seed=7)
    path = judged.run.file(first.artifacts[0])
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:2]) + whole[2][:40])
    again = judged.rank(judge="random", replies="candidates-1", seed=7)
    assert again.artifacts[0].id == first.artifacts[0].id
    assert sorted(path.read_bytes().splitlines()) == sorted(line.rstrip(b"\n") for line in whole)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"replies": "candidates-1", "candidates": 16}, "--candidates"),
        ({"replies": "candidates-1", "fraction": 0.5}, "--fraction"),
        ({"replies": "candidates-1", "limit": 3}, "--limit"),
        ({"replies": "candidates-1", "temperature": 0.5}, "--temperature"),
        ({"replies": "candidates-1", "agent": "micro"}, "--agent"),
        ({"replies": "candidates-1", "rollouts": "rollouts-1"}, "--rollouts"),
        ({"judge": "oracle", "from_": "critic-1"}, "--from"),
        ({"judge": "random", "reference": "micro"}, "--reference"),
        ({"judge": "untrained", "protocol": "upstream"}, "--protocol"),
        ({"judge": "untrained", "reference_context": "dialogue"}, "--reference-context"),
        ({"judge": "random", "reference_context": "hidden"}, "--reference-context"),
        ({"replies": "candidates-99"}, "candidates-99"),
    ],
)
def test_options_without_effect_are_refused(judged: JudgedRun, changes: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError) as error:
        judged.rank(**changes)
    assert word in f"{error.value.what} {error.value.where}"


def test_the_oracle_needs_tasks_with_facts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="do not know") as error:
        run_rank(make_run(tmp_path, "agent"), RankConfig(judge="oracle"), Silent())
    assert error.value.where == "--judge oracle"


def test_replies_at_unknown_turns_are_refused(judged: JudgedRun) -> None:
    row = next(iter(judged.rows(judged.first).values())).model_copy(update={"turn": 0})
    made = put(judged.run, "rank", "candidates", [row], [judged.run.artifact("rollouts-1")], agent=judged.agent)
    with pytest.raises(InputError, match="no such turn"):
        judged.rank(judge="random", replies=made.id)


# The metrics --------------------------------------------------------------------------------------------------------

TASK = Task(id="a", problem_description="Write fee.", ground_truth="def fee(h): return h * 5", facts=FACTS)


def ranked(task: str, *judged: tuple[str, float]) -> CandidateRow:
    return CandidateRow(
        trajectory_id=f"{task}-0",
        task_id=task,
        turn=1,
        observation=(Message(role="user", content="Write fee."),),
        candidates=tuple(Candidate(text=text, advantage=value) for text, value in judged),
        taken=None,
    )


NO_INTERVAL = {"ci_low": None, "ci_high": None}


def test_advantages_by_kind_and_agreement() -> None:
    good, idle, early = "Which rate?", "Why?", "I WANT TO ANSWER: def fee(h): return h * 5"
    rows = [
        ranked("a", (good, 2.0), (good, 2.0), (idle, 1.0), (early, 1.0)),
        ranked("b", (good, 0.0), (idle, 1.0), ("Who?", 0.0)),
    ]
    tasks = {name: TASK.model_copy(update={"id": name}) for name in "ab"}
    found = credit_metrics(rows, tasks, CreditScorer(task_kind("code"), 10)).as_json()
    assert list(found["credit"]) == ["useful", "useless", "early"]
    useful = found["credit"]["useful"]
    assert (useful["turns"], useful["replies"], useful["mean_advantage"]) == (2, 3, round(4 / 3, 6))
    assert useful["ci_low"] <= useful["mean_advantage"] <= useful["ci_high"]
    assert found["credit"]["early"] == {
        "turns": 1,
        "replies": 1,
        "mean_advantage": 1.0,
        "ci_low": None,
        "ci_high": None,
    }
    assert found["agreement_by_kind"] == {
        "useful>early": {"share": 1.0, "couples": 1},
        "useful>useless": {"share": 0.5, "couples": 3},
        "useless>early": {"share": 0.5, "couples": 1},
    }
    assert (found["couples"], found["agreement"]) == (5, 0.6)
    assert found["agreement_ci_low"] <= 0.6 <= found["agreement_ci_high"]


def test_tasks_without_facts_have_no_credit_metrics() -> None:
    row = ranked("a", ("Which rate?", 1.0), ("Why?", 0.0))
    bare = TASK.model_copy(update={"facts": ()})
    assert credit_metrics([row], {"a": bare}, CreditScorer(task_kind("code"), 10)).as_json() == {}
    alike = credit_metrics(
        [ranked("a", ("Why?", 1.0), ("Who?", 0.0))], {"a": TASK}, CreditScorer(task_kind("code"), 10)
    ).as_json()
    assert alike["couples"] == 0
    assert "agreement" not in alike
