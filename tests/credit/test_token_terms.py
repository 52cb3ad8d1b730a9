"""From weights of turns to the terms of tokens: which probabilities are used, which turns, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from sweet.credit.base import Batch, Credit, TurnLogprobs
from sweet.errors import UsageError
from sweet.learn.components import Example, TokenTerms
from sweet.learn.logprobs import Scorer, sequence_scores
from sweet.learn.rows import Candidate, CandidateRow, Pair
from sweet.learn.tokens import ChatEncoder
from sweet.tasks.base import Message
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory
from sweet.training.examples import DialogueEncoder, ExampleBuilder
from sweet.training.starting_policy import StartingPolicy
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer, build_trajectory

RULE = task_kind("code").rewards


class Asked(StartingPolicy):
    """The policy before its first step, which counts how often it is asked."""

    questions = 0

    def logprobs(self, *args: Any, **more: Any) -> dict[str, dict[int, TurnLogprobs]]:
        self.questions += 1
        return super().logprobs(*args, **more)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer(TEMPLATES["chatml"])


@pytest.fixture
def builder(tokenizer: Any) -> ExampleBuilder:
    return ExampleBuilder(DialogueEncoder(ChatEncoder(tokenizer), "paper", None), "scores-1")


@pytest.fixture
def models(builder: ExampleBuilder, tokenizer: Any) -> Asked:
    return Asked(builder.encoder, partial(Scorer, build_model(len(tokenizer))), 4096)


def with_ids(dialogue: Trajectory, tokenizer: Any, *, without: Sequence[int] = ()) -> Trajectory:
    """The dialogue as an agent records it: sampled ids, and a log-probability for each. `without` are turns whose
    log-probabilities are missing."""
    history = list(dialogue.dialogue_history)
    for i in dialogue.agent_turns:
        ids = (*tokenizer.encode(history[i].said, add_special_tokens=False), tokenizer.eos_token_id)
        known = None if i in without else tuple(-i - n / 1000 for n in range(len(ids)))
        history[i] = history[i].model_copy(update={"token_ids": ids, "logprobs": known})
    return dialogue.model_copy(update={"dialogue_history": tuple(history), "agent_system": None})


def built(builder: ExampleBuilder, models: Asked, dialogue: Trajectory, credit: Credit) -> tuple[Example, list[int]]:
    """The example of a credit, and the turns of its spans."""
    [example] = builder.credits(Batch({dialogue.id: dialogue}, RULE, source="scores-1"), [credit], models)
    assert builder.too_long == []
    return example, [span.turn for index in example.chosen for span in builder.pool.sequences[index].spans]


def joined(example: Example, field: str) -> tuple[float, ...]:
    return tuple(value for term in example.terms for value in getattr(term, field))


def logprobs_of(dialogue: Trajectory, turns: Sequence[int]) -> tuple[float, ...]:
    return tuple(value for turn in turns for value in dialogue.dialogue_history[turn].logprobs or ())


def test_recorded_probabilities_are_used_and_nothing_is_computed(
    builder: ExampleBuilder, models: Asked, tokenizer: Any
) -> None:
    dialogue = with_ids(build_trajectory("t", turns=3), tokenizer)
    example, turns = built(builder, models, dialogue, Credit("t", policy=dict.fromkeys(dialogue.agent_turns, 0.5)))
    assert turns == [1, 3, 5]
    assert joined(example, "sampled") == logprobs_of(dialogue, turns)
    assert set(joined(example, "advantages")) == {0.5}
    assert models.questions == 0


def test_only_the_turns_with_weights_are_supervised(builder: ExampleBuilder, models: Asked, tokenizer: Any) -> None:
    dialogue = with_ids(build_trajectory("t", turns=3), tokenizer)
    size = len(dialogue.dialogue_history[5].token_ids or ())
    each = [float(n) for n in range(size)]
    example, turns = built(builder, models, dialogue, Credit("t", policy={5: each, 1: -2.0}))
    assert turns == [1, 5]
    assert joined(example, "sampled") == logprobs_of(dialogue, turns)
    assert joined(example, "advantages") == (-2.0,) * (len(example.terms[0].sampled) - size) + tuple(each)
    # The same dialogue with other turns is another sequence of the pool, and does not change the first.
    [other] = builder.credits(Batch({"t": dialogue}, RULE), [Credit("t", policy={3: 1.0})], models)
    assert set(other.chosen).isdisjoint(example.chosen)
    assert [span.turn for i in other.chosen for span in builder.pool.sequences[i].spans] == [3]
    assert [span.turn for i in example.chosen for span in builder.pool.sequences[i].spans] == [1, 5]


def test_probabilities_that_were_not_recorded_are_those_of_the_policy_before_its_first_step(
    builder: ExampleBuilder, models: Asked, tokenizer: Any
) -> None:
    dialogue = with_ids(build_trajectory("t", turns=3), tokenizer, without=[3])
    weighted = dict.fromkeys(dialogue.agent_turns, 1.0)
    example, turns = built(builder, models, dialogue, Credit("t", policy=weighted))
    assert turns == [1, 3, 5]
    computed = models.logprobs("policy", [dialogue])["t"]
    expected = logprobs_of(dialogue, [1]) + computed[3].tokens + logprobs_of(dialogue, [5])
    assert joined(example, "sampled") == pytest.approx(expected)
    assert models.questions == 2, "once for all turns, and once by this test"


def test_probabilities_of_other_ids_are_not_used(builder: ExampleBuilder, models: Asked, tokenizer: Any) -> None:
    """Ids that do not spell the reply are encoded anew, so their probabilities are those of other tokens."""
    dialogue = with_ids(build_trajectory("t", turns=2), tokenizer)
    history = list(dialogue.dialogue_history)
    history[1] = history[1].model_copy(update={"content": "Which rate?", "output": "Which rate?"})
    changed = dialogue.model_copy(update={"dialogue_history": tuple(history)})
    example, _ = built(builder, models, changed, Credit("t", policy={1: 1.0}))
    assert joined(example, "sampled") == models.logprobs("policy", [changed])["t"][1].tokens


@pytest.mark.parametrize(
    ("weights", "where", "what"),
    [
        ({"policy": {1: [1.0, 2.0]}}, "t, turn 1", "Its advantages are not those of its"),
        ({"distil": {3: TurnLogprobs((-1.0,))}}, "t, turn 3", "The teacher's probabilities are not of its"),
        ({"policy": {1: 1.0}, "distil": {3: TurnLogprobs((-1.0,))}}, "t, turn 1", "The teacher's probabilities"),
    ],
)
def test_weights_that_do_not_fit_name_the_turn(
    builder: ExampleBuilder, models: Asked, tokenizer: Any, weights: Mapping[str, Any], where: str, what: str
) -> None:
    dialogue = with_ids(build_trajectory("t", turns=2), tokenizer)
    with pytest.raises(UsageError, match=what) as error:
        built(builder, models, dialogue, Credit("t", **weights))
    assert error.value.where == where
    assert error.value.fix == "correct the credit rule"


def test_a_turn_that_is_not_the_agent_s_has_no_tokens(builder: ExampleBuilder, models: Asked, tokenizer: Any) -> None:
    dialogue = with_ids(build_trajectory("t", turns=2), tokenizer)
    batch = Batch({"t": dialogue}, RULE)
    assert builder.credits(batch, [Credit("t", policy={2: 1.0})], models) == []
    assert "no turn that has a weight" in builder.too_long[0].what


def sampled_reply(tokenizer: Any, **changes: Any) -> Pair:
    ids = (*tokenizer.encode("Which rate?", add_special_tokens=False), tokenizer.eos_token_id)
    known = tuple(-n / 8 for n in range(len(ids)))
    reply = Candidate(text="Which rate?", advantage=0.3, token_ids=ids, logprobs=known).model_copy(update=changes)
    said = (Message(role="system", content="You help."), Message(role="user", content="Write fee."))
    row = CandidateRow(trajectory_id="t", task_id="task-1", turn=1, observation=said, candidates=(reply,), taken=None)
    return Pair.of(row, "c0", reply)


def test_a_sampled_reply_has_its_recorded_probabilities(builder: ExampleBuilder, models: Asked, tokenizer: Any) -> None:
    of = sampled_reply(tokenizer)
    [example] = builder.credits(Batch({}, RULE), [Credit(of, policy={1: 0.3})], models)
    assert example.name == "t-t1-c0"
    assert example.group == "t"
    size = len(of.chosen.token_ids or ())
    assert example.terms == (TokenTerms(of.chosen.logprobs or (), (0.3,) * size),)
    assert models.questions == 0


@pytest.mark.parametrize("recorded_prompt", [False, True])
def test_a_reply_without_recorded_probabilities_has_those_of_the_policy_before_its_first_step(
    builder: ExampleBuilder, models: Asked, tokenizer: Any, *, recorded_prompt: bool
) -> None:
    """What is computed in its dialogue is what the example's own sequence gives."""
    dialogue = with_ids(build_trajectory("t", turns=3), tokenizer).model_copy(update={"agent_system": "You help."})
    messages = tuple(dialogue.messages(None)[: 1 + 3])
    prompt = tuple(builder.encoder.encoder.prompts([messages])[0]) if recorded_prompt else None
    of = sampled_reply(tokenizer, logprobs=None)
    of = of.model_copy(update={"turn": 3, "observation": messages, "prompt_token_ids": prompt})
    [example] = builder.credits(Batch({"t": dialogue}, RULE), [Credit(of, policy={3: 1.0})], models)
    assert models.questions == 1
    sequence = builder.pool.sequences[example.chosen[0]]
    expected = sequence_scores(Scorer(build_model(len(tokenizer))), [sequence])[0].token_logprobs.tolist()
    assert joined(example, "sampled") == pytest.approx(expected, abs=1e-4)


def test_a_reply_of_which_nothing_is_known_is_an_error(builder: ExampleBuilder, models: Asked, tokenizer: Any) -> None:
    of = sampled_reply(tokenizer, logprobs=None)
    with pytest.raises(UsageError, match="not known how probable") as error:
        builder.credits(Batch({}, RULE), [Credit(of, policy={1: 1.0})], models)
    assert error.value.where == "t-t1-c0, turn 1"
