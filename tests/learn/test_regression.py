"""The critic with a regression head: it learns every target, resumes exactly, and ranks as it was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.learn.components import Example, Objective, Target
from sweet.learn.critic import RegressionCritic
from sweet.learn.head import attach_head
from sweet.learn.logprobs import Scorer, span_values
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.losses import losses
from sweet.learn.metrics import Record
from sweet.learn.tokens import ChatEncoder
from sweet.llm.base import Reply
from sweet.tasks.base import Message
from tests.learn.builders import SYSTEM, TEMPLATES, build_model, build_tokenizer, build_trajectory
from tests.learn.test_head import naive, with_head
from tests.learn.test_loop import make_data, weights
from tests.learn.turns import asked_turn

PREFERENCE = Objective(0.1, 0.0, target="preference")
OBJECTIVES = {
    "preference": PREFERENCE,
    "with-likelihood": Objective(0.1, 0.3, target="preference"),
    "dialogue": Objective(1.0, 0.0, target="dialogue"),
    "binary": Objective(None, 0.0, target="binary"),
    "real": Objective(None, 0.0, target="real"),
}
SETTINGS = LoopSettings(lr=1e-2, epochs=14, batch=4, seed=1)


def make_examples(tokenizer: Any, objective: Objective) -> tuple[Any, list[Example], list[Example]]:
    """A pool, examples to train on (single dialogues where outcomes are learned), and preferences held out."""
    pool, pairs = make_data(tokenizer)
    if objective.compares:
        return pool, pairs[:8], pairs[8:]
    goals = (1.0, 0.0) if objective.target == "binary" else (0.9, 0.2)
    alone = [
        Example(p.name, s, goals=(g,)) for p in pairs[:8] for s, g in zip((p.chosen, p.rejected), goals, strict=True)
    ]
    return pool, alone, [Example(p.name, p.chosen, p.rejected, goals=goals) for p in pairs[8:]]


def headed(tokenizer: Any) -> Any:
    model = build_model(len(tokenizer))
    attach_head(model)
    return model


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_target_is_learned(tokenizer: Any, name: str) -> None:
    pool, examples, heldout = make_examples(tokenizer, OBJECTIVES[name])
    records: list[Record] = []
    model = headed(tokenizer)
    loop = Loop(model, pool.sequences, examples, OBJECTIVES[name], SETTINGS, heldout=heldout, on_step=records.append)
    summary = loop.run()
    steps = [record for record in records if "loss" in record]
    assert loop.reference() is None
    assert steps[-1]["loss"] < 0.9 * steps[0]["loss"]
    assert summary["heldout_accuracy"] == 1.0
    assert summary["accuracy"] == (1.0 if OBJECTIVES[name].compares else None)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_batch_gives_what_its_examples_give_alone(tokenizer: Any, name: str) -> None:
    pool, examples, heldout = make_examples(tokenizer, OBJECTIVES[name])
    scorer = Scorer(with_head(build_model(len(tokenizer))))
    with torch.no_grad():
        together = losses(scorer, OBJECTIVES[name], pool.sequences, [*examples[:4], *heldout], None)
        for number, example in enumerate([*examples[:4], *heldout]):
            alone = losses(scorer, OBJECTIVES[name], pool.sequences, [example], None)
            for figure in ("loss", "chosen", "rejected"):
                one, other = getattr(together, figure)[number], getattr(alone, figure)[0]
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_published_head_compares_one_mean_over_each_whole_side(tokenizer: Any) -> None:
    """-log sigmoid(w . mean(h+) - w . mean(h-)), without beta and bias."""
    pool, pairs = make_data(tokenizer)
    model = build_model(len(tokenizer))
    head = attach_head(model, bias=False, seed=3)

    def score(indices: tuple[int, ...]) -> torch.Tensor:
        [sequence] = [pool.sequences[index] for index in indices]
        ids = torch.tensor([sequence.ids[: sequence.spans[-1].stop]])
        states: torch.Tensor = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0]
        return states.mean(0) @ head.weight[0]

    with torch.no_grad():
        found = losses(Scorer(model), OBJECTIVES["dialogue"], pool.sequences, pairs, None).loss
        expected = [-torch.nn.functional.logsigmoid(score(p.chosen) - score(p.rejected)) for p in pairs]
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-4, atol=1e-6)
    assert float(found.std()) > 1e-4


def test_each_side_needs_a_goal(tokenizer: Any) -> None:
    pool, pairs = make_data(tokenizer, 1)
    with pytest.raises(ValueError, match="a goal is needed"):
        losses(Scorer(headed(tokenizer)), OBJECTIVES["real"], pool.sequences, pairs, None)
    with pytest.raises(ValueError, match="has no regression head"):
        losses(Scorer(build_model(len(tokenizer))), PREFERENCE, pool.sequences, pairs, None)


class _StoppedError(Exception):
    pass


@pytest.mark.parametrize("name", OBJECTIVES)
def test_resumed_equals_uninterrupted(tokenizer: Any, tmp_path: Path, name: str) -> None:
    pool, examples, heldout = make_examples(tokenizer, OBJECTIVES[name])
    settings = LoopSettings(lr=2e-3, epochs=2, batch=3, seed=1, save_every=2)

    def make(model: Any, path: Path, **more: Any) -> Loop:
        return Loop(model, pool.sequences, examples, OBJECTIVES[name], settings, "d", heldout, path, **more)

    straight, resumed = headed(tokenizer), headed(tokenizer)
    expected = make(straight, tmp_path / "a.pt").run()

    def stop(record: Record) -> None:
        if record["step"] == 4:
            raise _StoppedError

    with pytest.raises(_StoppedError):
        make(headed(tokenizer), tmp_path / "b.pt", on_step=stop).run()
    found = make(resumed, tmp_path / "b.pt").run(resume=True)
    assert torch.equal(weights(straight), weights(resumed))
    assert bool(straight.regression_head.weight.any())
    assert (found["loss"], found["heldout_accuracy"]) == (expected["loss"], expected["heldout_accuracy"])


# At work ------------------------------------------------------------------------------------------------------------

OBSERVATION = [Message(role="system", content="You help."), Message(role="user", content="Write fee.")]
REPLIES = [Reply("What is the rate?"), Reply("It is 5."), Reply("What is the rate?"), Reply("7?")]


@pytest.mark.parametrize("share", [True, False])
def test_an_advantage_is_the_score_minus_the_mean_of_the_sampled_replies(share: bool) -> None:
    tokenizer = build_tokenizer(TEMPLATES["llama3"])
    model = with_head(build_model(len(tokenizer)))
    critic = RegressionCritic(model, ChatEncoder(tokenizer), share=share)
    turns = [asked_turn(OBSERVATION, hidden, REPLIES[:3], taken=REPLIES[3]) for hidden in ("C0", "other c")]
    encoder = ChatEncoder(tokenizer)
    found = critic.judge(turns)
    for turn, scored in zip(turns, found, strict=True):
        rows, _ = encoder.turn(OBSERVATION, REPLIES, turn=1, name="x", hidden=turn.task.hidden)
        with torch.no_grad():
            expected = [float(naive(model, row)) for row in rows]
        usual = sum(expected[:3]) / 3
        assert [reply.score for reply in scored] == pytest.approx(expected, abs=1e-5)
        assert [reply.advantage for reply in scored] == pytest.approx([w - usual for w in expected], abs=1e-5)
        assert [v.tokens for v in scored] == [len(reply) for reply in encoder.replies(REPLIES)]
        assert scored[0] == scored[2]
        assert all(reply.logprob is None and reply.reference is None for reply in scored)
    assert found[0][0].score != pytest.approx(found[1][0].score, abs=1e-4), "the critic reads c"
    everything = critic.judge([asked_turn(OBSERVATION, "C0", REPLIES)])[0]
    assert sum(reply.advantage for reply in everything) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("template", ["chatml", "qwen"])
@pytest.mark.parametrize("target", ["preference", "dialogue", "binary", "real"])
def test_dialogues_are_scored_as_the_training_compares_them(template: str, target: Target) -> None:
    """With a template that rewrites history as well, where a dialogue is several sequences."""
    tokenizer = build_tokenizer(TEMPLATES[template])
    model = with_head(build_model(len(tokenizer)))
    critic = RegressionCritic(model, ChatEncoder(tokenizer), target=target)
    dialogues = [build_trajectory(f"t{number}", turns=2 + number) for number in range(3)]
    found = critic.turn_scores(dialogues, SYSTEM)
    for dialogue, scores, liking in zip(dialogues, found, critic.score_dialogues(dialogues, SYSTEM), strict=True):
        assert list(scores) == dialogue.agent_turns
        values = list(scores.values())
        assert liking == pytest.approx(sum(values) if target == "preference" else values[-1], abs=1e-5)
        for turn, score in scores.items():
            said = Reply(dialogue.dialogue_history[turn].said)
            replies = asked_turn(dialogue.observation(turn, SYSTEM), dialogue.task.hidden, [said], turn=turn)
            assert score == pytest.approx(critic.judge([replies])[0][0].score, abs=1e-5)


def test_a_model_without_a_head_is_refused(tokenizer: Any) -> None:
    pool, _ = make_data(tokenizer, 1)
    with pytest.raises(ValueError, match="has no regression head"):
        span_values(Scorer(build_model(len(tokenizer))), pool.sequences)
