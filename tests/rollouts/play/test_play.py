"""Dialogues with a person on the real micro agent, the scripted human, and a server that fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sweet.errors import InputError, UsageError
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.play.config import PlayConfig
from sweet.rollouts.play.interface import Action, Situation
from sweet.rollouts.play.typed import LONGEST
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.runs.stages import stage_named
from sweet.runs.unfinished import unfinished
from sweet.scoring.config import EvalConfig
from sweet.scoring.results.compare import CompareConfig, run_compare
from sweet.scoring.stage import run_eval
from sweet.stages.artifacts import agent_of
from sweet.stages.base import Silent
from sweet.stages.meta import RolloutsMeta
from tests.local_server import QuietHandler, serving
from tests.rollouts.play.conftest import Scripted, every, play, rows

SAID = "I do not know."


def contents(turns: Any) -> list[str]:
    return [turn.content for turn in turns]


def test_a_person_as_the_human_makes_ordinary_rollouts(run: Run) -> None:
    person = Scripted(decide=every(SAID))
    result = play(run, person)
    assert (result.metrics.episodes, result.metrics.missing, result.metrics.under_way) == (2, 0, None)
    assert person.seen[0].task.hidden
    found = rows(run)
    assert [one.human for one in found] == ["ada", "ada"]
    meta = RolloutsMeta.of(run.artifact("rollouts-1"))
    assert (meta.agent, meta.sim, meta.tasks) == ("micro", "person:ada", "micro")
    for one in found:
        humans = [turn for turn in one.dialogue_history[1:] if turn.role == "user"]
        assert humans
        assert {turn.content for turn in humans} == {SAID}
        assert all(turn.token_ids for turn in one.dialogue_history if turn.role == "assistant")
        assert one.usage.completion_tokens > 0


def test_a_dialogue_is_the_one_of_a_rollout_with_the_same_replies(run: Run) -> None:
    run_rollout(run, RolloutConfig(num_tasks=1, max_turns=4, max_tokens=64), Silent())
    (simulated,) = rows(run, 1)
    replies = [turn.content for turn in simulated.dialogue_history[1:] if turn.role == "user"]
    play(run, Scripted([*(Action("send", reply) for reply in replies), Action("next")]), num_tasks=1)
    (played,) = rows(run, 2)
    assert contents(played.dialogue_history) == contents(simulated.dialogue_history)
    assert played.id == simulated.id
    assert [turn.sampling_seed for turn in played.dialogue_history] == [
        turn.sampling_seed for turn in simulated.dialogue_history
    ]


def test_a_person_as_the_agent_delivers_the_answer(run: Run) -> None:
    person = Scripted(
        [Action("send", "What is the minimum?"), Action("deliver", "def f(x):\n    return 1"), Action("next")]
    )
    play(run, person, as_="agent", num_tasks=1)
    (found,) = rows(run)
    assert found.answer == "def f(x):\n    return 1"
    assert found.outcome == "answered"
    assert found.human is None
    meta = RolloutsMeta.of(run.artifact("rollouts-1"))
    assert (meta.agent, meta.sim) == ("person:ada", "scripted")
    assert person.seen[0].session.role == "agent"
    with pytest.raises(UsageError, match="no model to continue from"):
        agent_of(run, run.artifact("rollouts-1"), "model")


def test_the_last_turn_of_an_agent_is_its_answer(run: Run) -> None:
    play(
        run,
        Scripted([Action("send", "Why?"), Action("send", "def f(x): return x"), Action("next")]),
        as_="agent",
        num_tasks=1,
        max_turns=2,
    )
    (found,) = rows(run)
    assert (found.outcome, found.answer) == ("out_of_turns", "def f(x): return x")


def test_leaving_and_coming_back_changes_nothing(run: Run, tmp_path: Any) -> None:
    whole = Run.create(tmp_path / "whole", task="code")
    play(whole, Scripted(decide=every(SAID)))
    left = play(run, Scripted([Action("send", SAID), Action("leave", "half a sen")]))
    assert left.metrics.under_way is not None
    assert (left.metrics.episodes, left.metrics.missing) == (0, 2)
    back = Scripted(decide=every(SAID))
    result = play(run, back)
    assert back.yours()[0].draft == "half a sen"
    assert contents(back.yours()[0].turns)[2] == SAID, "it goes on where it was"
    assert (result.metrics.episodes, result.artifacts[0].id) == (2, "rollouts-1")
    assert [contents(one.dialogue_history) for one in rows(run)] == [
        contents(one.dialogue_history) for one in rows(whole)
    ]


def test_the_model_is_not_asked_again_for_what_it_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from sweet.llm.embedded import EmbeddedClient

    asked = []
    chat = EmbeddedClient.chat

    async def counted(self: Any, messages: Any, sampling: Any) -> Any:
        asked.append(sampling.seed)
        return await chat(self, messages, sampling)

    monkeypatch.setattr(EmbeddedClient, "chat", counted)
    play(run, Scripted([Action("send", SAID), Action("leave")]), num_tasks=1)
    play(run, Scripted([Action("leave")]), num_tasks=1)
    assert len(asked) == len(set(asked)) == 2


def test_undoing_returns_to_the_last_input_and_the_model_says_the_same(run: Run) -> None:
    person = Scripted(
        [
            Action("send", SAID),
            Action("undo"),
            Action("send", SAID),
            Action("undo"),
            Action("send", "The tax is 7 percent."),
            Action("leave"),
        ]
    )
    play(run, person, num_tasks=1)
    first, second, undone, third = (contents(one.turns) for one in person.yours()[:4])
    assert first == undone
    assert second == third
    assert person.yours()[2].draft == SAID
    assert contents(person.yours()[5].turns)[2] == "The tax is 7 percent."


def test_an_ended_dialogue_can_be_undone_and_is_written_once(run: Run) -> None:
    answer = Action("deliver", "def f(x): return 0")
    person = Scripted([answer, Action("undo"), Action("deliver", "def f(x): return 1"), Action("next")])
    play(run, person, as_="agent", num_tasks=1)
    assert person.yours()[1].draft == "def f(x): return 0"
    assert [one.answer for one in rows(run)] == ["def f(x): return 1"]


def test_there_is_nothing_to_undo_before_the_first_input(run: Run) -> None:
    person = Scripted([Action("undo"), Action("leave")])
    play(run, person, num_tasks=1)
    assert person.said[-1:] == ["There is nothing to undo."]


def test_skipped_dialogues_are_left_out_until_they_are_asked_for(run: Run) -> None:
    result = play(run, Scripted([Action("send", SAID), Action("skip"), Action("leave")]))
    assert (result.metrics.skipped, result.metrics.missing) == (1, 1)
    again = Scripted(decide=every(SAID))
    result = play(run, again)
    assert {one.task.id for one in again.seen} == {"micro-train-0001"}
    assert (result.metrics.episodes, result.metrics.skipped, result.metrics.missing) == (1, 1, 0)
    result = play(run, Scripted(decide=every(SAID)), skipped=True)
    assert (result.metrics.episodes, result.metrics.skipped) == (2, 0)


def test_each_name_and_role_has_rollouts_of_its_own(run: Run) -> None:
    for settings in ({"name": "ada"}, {"name": "bob"}, {"name": "ada", "as_": "agent"}):
        play(run, Scripted(decide=every(SAID)), num_tasks=1, **settings)
    names = [(RolloutsMeta.of(one).agent, RolloutsMeta.of(one).sim) for one in run.manifest().of_kind("rollouts")]
    assert names == [("micro", "person:ada"), ("micro", "person:bob"), ("person:ada", "scripted")]


def test_what_was_played_is_scored_and_compared_with_a_rollout(run: Run) -> None:
    run_rollout(run, RolloutConfig(num_tasks=2, max_turns=4, max_tokens=64), Silent())
    play(run, Scripted(decide=every(SAID)))
    for number in (1, 2):
        run_eval(run, EvalConfig(from_=f"rollouts-{number}"), Silent())
    compared = run_compare(f"{run.path}:scores-1", f"{run.path}:scores-2", CompareConfig())
    assert compared.metrics.as_json()["tasks"] == 2


def test_the_stage_can_be_gone_on_with_after_leaving(run: Run) -> None:
    stage = stage_named("play")
    assert stage is not None
    play(run, Scripted([Action("leave")]), temperature=0.5)
    attempt = unfinished(run.manifest(), stage)
    assert attempt is not None
    assert attempt.config["temperature"] == 0.5


# What a person types

HOSTILE = "the \x1b[31mfee\x1b]0;title\x07 is\0 \u202e5\u2066 \x9b a\tday\r\nor\rweek\u200d\ud800"


def test_hostile_text_loses_its_control_characters(run: Run) -> None:
    play(run, Scripted([Action("send", HOSTILE), Action("leave")]), num_tasks=1)
    person = Scripted([Action("leave")])
    play(run, person, num_tasks=1)
    assert person.yours()[0].turns[2].content == "the [31mfee]0;title is 5  a\tday\nor\nweek\u200d"


@pytest.mark.parametrize("text", ["", " \n\t", "\0\x1b", "x" * (LONGEST["human"] + 1), "y" * 100_000])
def test_texts_that_cannot_be_sent_are_refused_whole(run: Run, text: str) -> None:
    person = Scripted([Action("send", text), Action("leave")])
    play(run, person, num_tasks=1)
    assert person.said[-1].startswith(("There is nothing to send.", "The text has"))
    assert [one.state for one in person.seen] == ["waiting", "yours"]


MARKED = ["I WANT TO ANSWER:\nx", "**I want to answer**: x", "thought OUTPUT: x", "a\nOUTPUT: b\nOUTPUT: c"]


@pytest.mark.parametrize("deliver", [False, True])
@pytest.mark.parametrize("text", MARKED)
def test_markers_that_an_agent_types_are_refused(run: Run, text: str, deliver: bool) -> None:
    if deliver and text.startswith("thought"):
        text = f"x\n{text.removeprefix('thought ')}"  # within an answer, only at the start of a line
    person = Scripted([Action("deliver" if deliver else "send", text), Action("leave")])
    play(run, person, as_="agent", num_tasks=1)
    assert "marker of the protocol" in person.said[-1]


@pytest.mark.parametrize("text", MARKED)
def test_markers_that_a_human_types_are_text(run: Run, text: str) -> None:
    person = Scripted([Action("send", text), Action("leave")])
    play(run, person, num_tasks=1)
    assert person.yours()[1].turns[2].content == text


def test_code_of_the_reference_is_sent_only_when_it_is_sent_twice(run: Run, tmp_path: Path) -> None:
    reference = (
        "def fee(days, late):\n    surcharge = max(days - late, 0) * 17\n    return round(days * 3.5 + surcharge, 2)"
    )
    row = {"id": "fee", "problem_description": "A fee: def fee(days, late)", "ground_truth": reference}
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps(row | {"test_cases": {"test1": "fee(1, 2)"}}) + "\n")
    person = Scripted([Action("send", reference), Action("send", reference), Action("leave")])
    play(run, person, tasks=str(tasks))
    assert "looks like code of the reference" in person.said[-1]
    assert person.yours()[1].turns[2].content == reference


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a/b",
        "..",
        "a\\b",
        "a\nb",
        "a\x1b[31m",
        "\u202eada",
        "x" * 41,
        "scripted",
        "Micro",
        " ada",
        "a  b",
        "$HOME",
    ],
)
def test_a_hostile_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="name"):
        PlayConfig(name=name)


@pytest.mark.parametrize("name", ["ada", "Ada L.", "Žižek", "o-o_1+2", "李"])
def test_ordinary_names_are_accepted(name: str) -> None:
    assert PlayConfig(name=name).name == name


@pytest.mark.parametrize("settings", [{"sim": "m"}, {"as_": "agent", "agent": "m"}, {"sim_url": ["http://x"]}])
def test_a_model_for_the_own_role_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="you play yourself"):
        PlayConfig(**settings)


# Failures


class _Model(QuietHandler):
    """Refuses requests until it is ready."""

    ready = False

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = {"role": "assistant", "content": "Which fee?"}
        body: dict[str, Any] = {"model": "m", "choices": [{"index": 0, "message": answer, "finish_reason": "stop"}]}
        body["usage"] = {"prompt_tokens": 1, "completion_tokens": 1}
        if _Model.ready:
            self._answer(200, body)
        else:
            self._answer(403, {"error": {"message": "not\x1b[31m now"}})

    def do_GET(self) -> None:
        self._answer(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.send(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


def test_a_server_that_refuses_is_shown_and_asked_again(run: Run) -> None:

    def decide(situation: Situation) -> Action:
        _Model.ready = True
        return Action("retry") if situation.state == "failed" else Action("leave")

    person = Scripted(decide=decide)
    with serving(_Model) as address:
        play(run, person, num_tasks=1, agent="m", agent_url=[f"{address}/v1"])
    failed, yours = [one for one in person.seen if one.state != "waiting"]
    assert (failed.state, yours.state) == ("failed", "yours")
    assert "not" in failed.notice
    assert contents(yours.turns)[1:] == ["Which fee?"]


def test_a_damaged_file_of_the_dialogue_under_way_is_named(run: Run) -> None:
    play(run, Scripted([Action("send", SAID), Action("leave")]), num_tasks=1)
    path = run.file(run.artifact("rollouts-1")).with_name(".rollouts-1.play.json")
    content = json.loads(path.read_text())
    for text in ("{", json.dumps(content | {"steps": 3}), json.dumps(content | {"version": 2})):
        path.write_text(text)
        with pytest.raises(InputError, match=r"play\.json") as error:
            play(run, Scripted([Action("leave")]), num_tasks=1)
        assert error.value.fix
    path.unlink()
    assert play(run, Scripted([Action("leave")]), num_tasks=1).metrics.missing == 1
