"""Training on thinking agents is exact: replies are conditioned on what the agent read, thoughts are branches of the
prefix tree, and log-probabilities and gradients are those of plain sequences from what was sampled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sweet.learn import blocks
from sweet.learn.components import Example, Objective
from sweet.learn.critic import AdvantageCritic
from sweet.learn.estimate import ZeroSettings
from sweet.learn.job import Job
from sweet.learn.logprobs import Scorer, span_logprobs
from sweet.learn.loop import LoopSettings
from sweet.learn.losses import losses
from sweet.learn.tokens import ChatEncoder
from sweet.learn.trainee import Start
from sweet.learn.tree import Forest, build_tree
from sweet.llm.base import Reply
from sweet.tasks.base import Message, TurnTokens
from sweet.tasks.trajectory import Trajectory
from tests.learn.builders import TEMPLATES, build_tokenizer
from tests.learn.thinking import ENDS, OPENINGS, THINKING, play, render, thinking_model, thinking_tokenizer
from tests.learn.turns import asked_turn

FAMILIES = list(THINKING)
COUNTED: list[TurnTokens] = ["both", "reply", "separate"]


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Any]:
    return {family: thinking_tokenizer(family) for family in FAMILIES}


def sampled(trajectory: Trajectory) -> list[tuple[list[int], int, int]]:
    """For each turn all ids that the model read and wrote, and where its thought and its reply start."""
    rows = []
    for index in trajectory.agent_turns:
        turn, prompt = trajectory.dialogue_history[index], trajectory.prompt_ids(index)
        assert prompt is not None
        assert turn.token_ids is not None
        assert turn.thought_tokens is not None
        rows.append(([*prompt, *turn.token_ids], len(prompt), len(prompt) + turn.thought_tokens))
    return rows


def turn_mean(model: Any, ids: list[int], start: int, place: int, counted: TurnTokens) -> torch.Tensor:
    """The mean log-probability of a turn by the model's own forward pass."""
    table = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0].float(), -1)
    thought, reply = (
        torch.stack([table[i - 1, ids[i]] for i in part]) for part in (range(start, place), range(place, len(ids)))
    )
    if counted == "both":
        return torch.cat([thought, reply]).mean()
    return reply.mean() if counted == "reply" else (thought.mean() + reply.mean()) / 2


@pytest.mark.parametrize("family", FAMILIES)
def test_a_turn_is_what_the_model_read_and_wrote(tokenizers: dict[str, Any], family: str) -> None:
    trajectory = play(tokenizers[family], family)
    encoded = ChatEncoder(tokenizers[family], "reply").dialogue(trajectory, None)
    found = [(list(row.ids), span.start, span.stop) for row in encoded.sequences for span in row.spans]
    assert found == [(ids, place, len(ids)) for ids, _, place in sampled(trajectory)]
    whole = ChatEncoder(tokenizers[family]).dialogue(trajectory, None).sequences
    assert [span.start for row in whole for span in row.spans] == [start for _, start, _ in sampled(trajectory)]


@pytest.mark.parametrize("family", FAMILIES)
def test_without_ids_a_thought_is_written_as_the_model_writes_it(tokenizers: dict[str, Any], family: str) -> None:
    tokenizer = tokenizers[family]
    trajectory = play(tokenizer, family, recorded=False)
    encoder = ChatEncoder(tokenizer, "separate")
    for index, row in zip(trajectory.agent_turns, encoder.dialogue(trajectory, None).sequences, strict=True):
        turn, [span] = trajectory.dialogue_history[index], row.spans
        assert tokenizer.decode(row.ids[: span.start]) == render(tokenizer, trajectory.dialogue_history[:index])
        assert tokenizer.decode(row.ids[span.start : span.split]) == OPENINGS[family].format(turn.thought)
        assert tokenizer.decode(row.ids[span.split : span.stop]) == turn.said + ENDS[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rendered_turn_has_the_ids_that_the_tokenizer_gives_of_it(tokenizers: dict[str, Any], family: str) -> None:
    """A first turn, whose recorded ids are the tokenizer's."""
    recorded, rendered = (
        ChatEncoder(tokenizers[family], "separate").dialogue(play(tokenizers[family], family, 1, recorded=known), None)
        for known in (True, False)
    )
    assert recorded == rendered


@pytest.mark.parametrize("counted", COUNTED)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_tree_gives_the_means_and_gradients_of_what_was_sampled(
    tokenizers: dict[str, Any], family: str, counted: TurnTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three dialogues, two of which are of one opening, against each turn alone by the model's own forward pass."""
    monkeypatch.setattr(blocks, "BLOCK", 37)
    model = thinking_model(tokenizers[family])
    dialogues = [play(tokenizers[family], family, turns, name=f"t{turns}") for turns in (1, 3, 4)]
    turns = [turn for dialogue in dialogues for turn in sampled(dialogue)]
    weights = torch.linspace(-1, 1, len(turns))
    expected = torch.stack([turn_mean(model, *turn, counted) for turn in turns])
    torch.autograd.backward([(expected * weights).sum()])
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    encoder = ChatEncoder(tokenizers[family], counted)
    rows = [row for dialogue in dialogues for row in encoder.dialogue(dialogue, None).sequences]
    for share in (False, True):
        model.zero_grad()
        scorer = Scorer(model, share=share)
        scores = scorer(rows)
        means = scores.sums / scores.counts
        torch.autograd.backward([(means * weights).sum()])
        torch.testing.assert_close(means, expected, rtol=0, atol=1e-5)
        found = torch.cat([p.grad.flatten() for p in model.parameters()])
        assert float((found - gradient).norm() / gradient.norm()) < 1e-4
        computed = scorer.work.tokens
    assert computed < 0.6 * sum(len(row.ids) for row in rows), "the tree was not used"


@pytest.mark.parametrize("family", FAMILIES)
def test_thoughts_are_branches_and_the_history_is_the_trunk(tokenizers: dict[str, Any], family: str) -> None:
    """A dialogue costs its last sequence, and each earlier turn what the history does not repeat of it."""
    trajectory = play(tokenizers[family], family, 5)
    rows = ChatEncoder(tokenizers[family]).dialogue(trajectory, None).sequences
    assert len(rows) == 5, "no template here repeats a thought, so no turn extends another"
    forest = Forest()
    forest.add(row.ids for row in rows)
    branches = sum(len(row.ids) - row.spans[0].start for row in rows[:-1])
    # A generation prompt that opens a thought is not repeated by the history.
    header = ChatEncoder(tokenizers[family]).header
    last = len(rows[-1].ids)
    assert last + branches - 5 * header <= forest.slots <= last + branches + 4 * header
    assert forest.slots == len(build_tree([row.ids for row in rows]).ids)
    assert forest.slots < 0.6 * sum(len(row.ids) for row in rows)


@settings(deadline=None, max_examples=40)
@given(
    family=st.sampled_from(FAMILIES),
    turns=st.integers(1, 5),
    recorded=st.booleans(),
    counted=st.sampled_from(COUNTED),
    limit=st.one_of(st.none(), st.integers(120, 700)),
    hidden=st.sampled_from([None, "C0"]),
)
def test_every_turn_is_supervised_once_after_its_own_prompt(
    family: str, turns: int, recorded: bool, counted: TurnTokens, limit: int | None, hidden: str | None
) -> None:
    tokenizer = _TOKENIZERS.setdefault(family, thinking_tokenizer(family))
    trajectory = play(tokenizer, family, turns, recorded=recorded)
    encoder = ChatEncoder(tokenizer, counted)
    try:
        encoded = encoder.dialogue(trajectory, None, hidden=hidden, max_length=limit)
    except Exception:
        assert limit is not None
        return
    spans = [(row, span) for row in encoded.sequences for span in row.spans]
    assert [span.turn for _, span in spans] == trajectory.agent_turns[encoded.dropped :]
    for row, span in spans:
        turn = trajectory.dialogue_history[span.turn]
        text, said = tokenizer.decode(row.ids[: span.stop]), turn.said + ENDS[family]
        assert text.endswith(OPENINGS[family].format(turn.thought) + said)
        assert text.count("I do not know rate") == 1, "it reads a thought of another turn"
        assert ("C0" in text) == (hidden is not None)
        assert sum(span.weights) == pytest.approx(span.stop - span.start)
        assert (span.split is not None) == (counted == "separate")
        lead = "" if counted == "reply" else OPENINGS[family].format(turn.thought)
        assert tokenizer.decode(row.ids[span.start : span.stop]) == lead + said


_TOKENIZERS: dict[str, Any] = {}


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=9))
def test_a_forest_counts_the_distinct_prefixes(sequences: list[list[int]]) -> None:
    rows = [tuple(row) for row in sequences]
    prefixes = {row[:size] for row in rows for size in range(1, len(row) + 1)}
    forest = Forest()
    forest.add(rows)
    assert forest.slots == len(prefixes) == len(build_tree(rows).ids)


def test_ids_of_another_tokenizer_are_not_used(tokenizers: dict[str, Any]) -> None:
    """A dialogue of one model, learned by another: prompt and replies are encoded anew."""
    trajectory = play(tokenizers["gpt-oss"], "gpt-oss", 2)
    encoder = ChatEncoder(tokenizers["qwen3"])
    plain = play(tokenizers["qwen3"], "qwen3", 2, recorded=False)
    assert encoder.dialogue(trajectory, None) == encoder.dialogue(plain, None)


def test_a_recorded_prompt_is_read_as_it_was(tokenizers: dict[str, Any]) -> None:
    """The server rendered with settings that are not the tokenizer's own: another effort, another date."""
    tokenizer = tokenizers["gpt-oss"]
    trajectory = play(tokenizer, "gpt-oss", 1)
    prompt = tokenizer(render(tokenizer, trajectory.dialogue_history[:1], reasoning_effort="low"))["input_ids"]
    first, last = trajectory.dialogue_history
    history = (first, last.model_copy(update={"prompt_token_ids": tuple(prompt)}))
    [row] = ChatEncoder(tokenizer).dialogue(trajectory.model_copy(update={"dialogue_history": history}), None).sequences
    assert "Reasoning: low" in tokenizer.decode(row.ids)
    rows, _ = ChatEncoder(tokenizer).turn(
        trajectory.observation(1, None), [Reply.of(last)], turn=1, name="x", prompt=prompt
    )
    assert rows[0].ids == row.ids
    [other] = ChatEncoder(tokenizer).dialogue(trajectory, None, hidden="C0").sequences
    assert "Reasoning: medium" in tokenizer.decode(other.ids)


def test_prompts_are_rendered_with_the_effort_of_the_dialogues(tokenizers: dict[str, Any]) -> None:
    """Also those with c, which no one has recorded; a thought that the prompt has closed is not written again."""
    said = [Message(role="user", content="q")]
    encoder = ChatEncoder(tokenizers["gpt-oss"], effort="low")
    for hidden in (None, "C0"):
        assert "Reasoning: low" in encoder.tokenizer.decode(encoder.prompts([said], hidden=hidden)[0])
    empty = "<think>\n\n</think>\n\n"
    for effort, opened in (("none", True), (None, False)):
        tokenizer = tokenizers["qwen3"]
        encoder = ChatEncoder(tokenizer, "separate", effort)  # type: ignore[arg-type]
        [row] = encoder.turn(said, [Reply("a")], turn=1, name="x", hidden="C0")[0]
        [span] = row.spans
        assert tokenizer.decode(row.ids[: span.start]).endswith(empty) == opened
        assert tokenizer.decode(row.ids[span.start :]) == ("" if opened else empty) + "a<|im_end|>"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_thought_that_was_cut_off_is_the_whole_turn(tokenizers: dict[str, Any], family: str) -> None:
    """It has no mark behind it, and is supervised although no reply follows."""
    tokenizer = tokenizers[family]
    for counted in COUNTED:
        encoder = ChatEncoder(tokenizer, counted)
        said = [Message(role="user", content="q")]
        text = OPENINGS[family].split("{}")[0] + "It is 5"
        ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
        for reply in (
            Reply("", token_ids=ids, finish_reason="length", thought="It is 5", thought_tokens=len(ids)),
            Reply("", finish_reason="length", thought="It is 5"),
            Reply("", token_ids=(*ids, tokenizer.eos_token_id), thought="It is 5", thought_tokens=len(ids) + 1),
        ):
            [row] = encoder.turn(said, [reply], turn=1, name="x")[0]
            [span] = row.spans
            assert (row.ids[span.start : span.stop], span.split) == (reply.token_ids or ids, None)


def test_the_place_of_a_reply_is_found_where_the_number_of_the_thoughts_tokens_is_unknown(
    tokenizers: dict[str, Any],
) -> None:
    for family in FAMILIES:
        turn = play(tokenizers[family], family, 1).dialogue_history[1]
        encoder = ChatEncoder(tokenizers[family])
        known, unknown = encoder.encode_replies([Reply.of(turn), replace(Reply.of(turn), thought_tokens=None)])
        assert known.recorded
        assert unknown == known


def test_a_template_that_writes_no_thought_has_it_inline(tokenizers: dict[str, Any]) -> None:
    tokenizer = build_tokenizer(TEMPLATES["llama3"])
    [row] = ChatEncoder(tokenizer, "separate").turn(
        [Message(role="user", content="q")], [Reply("a", thought="b")], turn=1, name="x"
    )[0]
    [span] = row.spans
    assert tokenizer.decode(row.ids[span.start : span.split]) == "<think>\nb\n</think>\n\n"
    assert tokenizer.decode(row.ids[span.split : span.stop]) == "a<|eot_id|>"


def test_an_empty_thought_is_a_part_of_the_reply(tokenizers: dict[str, Any]) -> None:
    tokenizer = tokenizers["qwen3"]
    marks = tokenizer("<think>\n\n</think>\n\n", add_special_tokens=False)["input_ids"]
    ids = (*marks, *tokenizer("It is 5.")["input_ids"], tokenizer.eos_token_id)
    replies = [
        Reply("It is 5.", token_ids=ids, thought="", thought_tokens=len(marks)),
        Reply("It is 5.", token_ids=ids, thought_tokens=len(marks)),
        Reply("It is 5.", token_ids=ids),
        Reply("It is 5."),
        Reply("It is 5.", thought=""),
    ]
    found = ChatEncoder(tokenizer, "separate").encode_replies(replies)
    assert [(reply.ids, reply.thought) for reply in found] == [(list(ids), 0)] * 5
    assert [reply.recorded for reply in found] == [True, True, True, False, False]


def test_a_reply_without_a_thought_has_its_channel(tokenizers: dict[str, Any]) -> None:
    tokenizer = tokenizers["gpt-oss"]
    marks = tokenizer("<|channel|>final<|message|>", add_special_tokens=False)["input_ids"]
    letters = [tokenizer(letter)["input_ids"][0] for letter in "rate"]
    ids = (*marks, *letters, tokenizer.eos_token_id)
    replies = [
        Reply("rate", token_ids=ids),
        Reply("rate", token_ids=ids, thought_tokens=len(marks)),
        Reply("rate", token_ids=ids, thought="", thought_tokens=len(marks)),
    ]
    encoder = ChatEncoder(tokenizer, "separate")
    assert [(reply.ids, reply.thought) for reply in encoder.encode_replies(replies)] == [(list(ids), 0)] * 3
    [usual, empty] = encoder.replies([Reply("rate"), Reply("rate", thought="")])
    assert usual == empty != list(ids)
    assert tokenizer.decode(usual) == tokenizer.decode(ids)


def test_ids_that_are_not_of_the_thought_are_not_used(tokenizers: dict[str, Any]) -> None:
    turn = play(tokenizers["qwen3"], "qwen3", 1).dialogue_history[1]
    encoder, reply = ChatEncoder(tokenizers["qwen3"]), Reply.of(turn)
    other = replace(reply, thought="Something else.")
    assert encoder.encode_replies([other]) == encoder.encode_replies([replace(other, token_ids=None)])


@pytest.mark.parametrize("normalize", ["turn", "trajectory", "none"])
@pytest.mark.parametrize("counted", COUNTED)
def test_losses_are_those_of_the_formulas_on_plain_sequences(
    tokenizers: dict[str, Any], counted: TurnTokens, normalize: Any
) -> None:
    """A turn's advantage is the mean log-ratio of thought, of reply, or of both means; the rest is as without thoughts,
    with the turn's number of tokens as its length."""
    tokenizer = tokenizers["qwen3"]
    model, base = thinking_model(tokenizer), thinking_model(tokenizer, seed=1)
    sides = [play(tokenizer, "qwen3", turns, name=f"t{turns}") for turns in (2, 3)]
    encoder = ChatEncoder(tokenizer, counted)
    pool = [row for side in sides for row in encoder.dialogue(side, None).sequences]
    reference = [sums for sums, _ in span_logprobs(Scorer(base), pool)]
    example = Example("e", (0, 1), (2, 3, 4))
    objective = Objective(0.5, 0.25, normalize)
    with torch.no_grad():
        found = losses(Scorer(model), objective, pool, [example], reference)
        scores: list[torch.Tensor] = []
        likelihoods: list[torch.Tensor] = []
        for side in sides:
            turns = sampled(side)
            means = [turn_mean(model, *turn, counted) for turn in turns]
            advantages = [mean - turn_mean(base, *turn, counted) for mean, turn in zip(means, turns, strict=True)]
            sizes = [len(ids) - (place if counted == "reply" else start) for ids, start, place in turns]
            lengths = torch.tensor(sizes)
            total = (torch.stack(advantages) * lengths).sum()
            by_rule = {"turn": torch.stack(advantages).sum(), "trajectory": total / sum(sizes), "none": total}
            scores.append(by_rule[normalize])
            likelihoods.append((torch.stack(means) * lengths).sum() / sum(sizes))
    expected = -torch.nn.functional.logsigmoid(0.5 * (scores[0] - scores[1])) - 0.25 * likelihoods[0]
    torch.testing.assert_close(found.loss[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("counted", COUNTED)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_critics_advantage_is_equation_3_over_the_chosen_tokens(
    tokenizers: dict[str, Any], family: str, counted: TurnTokens
) -> None:
    """c is in the request, and the history has no thought of earlier turns."""
    tokenizer = tokenizers[family]
    model, base = thinking_model(tokenizer), thinking_model(tokenizer, seed=1)
    trajectory = play(tokenizer, family, 3)
    critic = AdvantageCritic(model, base, tokenizer, turn_tokens=counted)
    history = trajectory.dialogue_history
    informed = f"The reference solution is:\n{trajectory.task.hidden}\n\n{history[0].content}"
    seen = [history[0].model_copy(update={"content": informed}), *history[1:]]
    expected = []
    for index in trajectory.agent_turns:
        turn, prompt = history[index], tokenizer(render(tokenizer, seen[:index]), add_special_tokens=False)["input_ids"]
        assert turn.token_ids is not None
        assert turn.thought_tokens is not None
        row = ([*prompt, *turn.token_ids], len(prompt), len(prompt) + turn.thought_tokens)
        with torch.no_grad():
            expected.append(float(turn_mean(model, *row, counted) - turn_mean(base, *row, counted)))
    [credit] = critic.turn_scores([trajectory], None)
    assert list(credit.values()) == pytest.approx(expected, abs=1e-5)
    turns = [
        asked_turn(trajectory.observation(i, None), trajectory.task.hidden, [Reply.of(history[i])], turn=i)
        for i in trajectory.agent_turns
    ]
    judged = [scored.advantage for [scored] in critic.judge(turns)]
    assert judged == pytest.approx(expected, abs=1e-5)


def test_ranks_get_the_parts_of_turns(tokenizers: dict[str, Any], tmp_path: Any) -> None:
    rows = ChatEncoder(tokenizers["r1"], "separate").dialogue(play(tokenizers["r1"], "r1", 2), None).sequences
    settings_ = LoopSettings(lr=1.0, epochs=1, batch=1, seed=0, token_budget=100)
    job = Job(
        start=Start("base"),
        output=tmp_path,
        device="cpu",
        zero=ZeroSettings(0, "none"),
        settings=settings_,
        objective=Objective(0.1, 0.0),
        digest="x",
        resume=False,
        pool=list(rows),
        examples=[],
        heldout=[],
    )
    job.write(tmp_path / "job.pt")
    assert Job.read(tmp_path / "job.pt").pool == list(rows)


def test_thoughts_that_were_kept_are_a_part_of_the_trunk(tokenizers: dict[str, Any]) -> None:
    """With `--thoughts keep` each prompt repeats the thoughts before it, so the dialogue is one sequence."""
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    trajectory = play(tokenizers["qwen3"], "qwen3", 3, recorded=False)
    for kept, sequences, thoughts in (("keep", 1, 3), (None, 3, 1)):
        played = trajectory.model_copy(update={"thoughts": kept})
        rows = ChatEncoder(tokenizer, "separate").dialogue(played, None).sequences
        assert len(rows) == sequences
        text = tokenizer.decode(rows[-1].ids)
        assert text.count("<think>") == text.count("I do not know rate") == thoughts
        spans = [(row, span) for row in rows for span in row.spans]
        for index, (row, span) in zip(trajectory.agent_turns, spans, strict=True):
            turn = trajectory.dialogue_history[index]
            assert tokenizer.decode(row.ids[span.start : span.split]) == f"<think>\n{turn.thought}\n</think>\n\n"
            assert tokenizer.decode(row.ids[span.split : span.stop]) == f"{turn.said}<|im_end|>"
