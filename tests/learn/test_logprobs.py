"""The log-probabilities of spans, and their gradients, equal those of a full forward pass, for several families."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sweet.learn import blocks, logprobs
from sweet.learn.logprobs import Scorer, batches, group_logprobs, sequence_scores, span_logprobs
from sweet.learn.sequences import Span, TokenSequence
from sweet.learn.tree import Forest, build_tree
from tests.learn.builders import build_model

VOCABULARY = 97
FAMILIES = ["llama", "qwen2", "mistral", "gemma", "gemma2", "cohere", "granite"]


def random_sequences(count: int, seed: int = 0) -> list[TokenSequence]:
    random = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        length = int(torch.randint(8, 40, (1,), generator=random))
        ids = torch.randint(0, VOCABULARY, (length,), generator=random).tolist()
        cut = int(torch.randint(3, length - 2, (1,), generator=random))
        rows.append(TokenSequence(tuple(ids), (Span(1, 3, 1), Span(cut, length, 3))))
    return rows


def naive(model: Any, sequence: TokenSequence) -> list[torch.Tensor]:
    """Every position's logits of one sequence alone."""
    ids = torch.tensor([sequence.ids])
    table = torch.log_softmax(model(input_ids=ids).logits.float(), -1)[0]
    return [sum(table[i - 1, sequence.ids[i]] for i in range(s.start, s.stop)) for s in sequence.spans]  # type: ignore[misc]


@pytest.mark.parametrize("family", FAMILIES)
def test_spans_equal_the_full_forward(family: str) -> None:
    model = build_model(VOCABULARY, family=family)
    sequences = random_sequences(9)
    scorer = Scorer(model)
    with torch.no_grad():
        expected = [torch.stack(naive(model, sequence)) for sequence in sequences]
    found = span_logprobs(scorer, sequences, budget=100)
    for sequence, want, (sums, counts) in zip(sequences, expected, found, strict=True):
        torch.testing.assert_close(sums, want, rtol=1e-5, atol=1e-4)
        assert counts.tolist() == [span.stop - span.start for span in sequence.spans]


def test_logits_without_gradients_are_computed_in_chunks_that_the_cache_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sequences = build_model(VOCABULARY), random_sequences(9)
    rows: list[int] = []
    scorer = Scorer(model)
    expected = span_logprobs(scorer, sequences, budget=1000)
    monkeypatch.setattr(logprobs, "CACHED_NUMBERS", 7 * VOCABULARY)
    monkeypatch.setattr(logprobs, "LEAST_ROWS", 3)
    scorer = Scorer(model)
    model.get_output_embeddings().register_forward_hook(lambda _layer, inputs, _output: rows.append(len(inputs[0])))
    found = span_logprobs(scorer, sequences, budget=1000)
    assert max(rows) == 7
    for (sums, _), (want, _) in zip(found, expected, strict=True):
        torch.testing.assert_close(sums, want, rtol=1e-5, atol=1e-5)
    rows.clear()
    scorer(sequences)
    assert rows == [sum(counts.sum() for _, counts in expected)], "with gradients in one, which is not recomputed"
    monkeypatch.setattr(logprobs, "LEAST_ROWS", 11)
    scorer = Scorer(model)
    rows.clear()
    span_logprobs(scorer, sequences, budget=1000)
    assert max(rows) == 11


@pytest.mark.parametrize("top", [0, 2])
@pytest.mark.parametrize("chunk", [1, VOCABULARY * 3, 1 << 24])
def test_gradients_equal_the_full_forward(chunk: int, top: int) -> None:
    model = build_model(VOCABULARY)
    sequences = random_sequences(4)
    torch.autograd.backward([torch.stack([x for s in sequences for x in naive(model, s)]).square().sum()])
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    torch.autograd.backward([Scorer(model, chunk=chunk)(sequences, None, top).sums.square().sum()])
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("chunk", [1, VOCABULARY * 3, 1 << 24])
def test_the_most_likely_ids_equal_those_of_the_full_forward(chunk: int, *, share: bool) -> None:
    model = build_model(VOCABULARY)
    prompt = random_sequences(1)[0].ids[:5]
    sequences = [sequence.after(prompt) for sequence in random_sequences(5, seed=1)]
    scorer = Scorer(model, chunk=chunk, share=share)
    found = sequence_scores(scorer, sequences, 100, top=3)
    tokens = [scores.token_logprobs.tolist() for scores in sequence_scores(scorer, sequences, 100)]
    for sequence, scores, expected_tokens in zip(sequences, found, tokens, strict=True):
        with torch.no_grad():
            table = torch.log_softmax(model(input_ids=torch.tensor([sequence.ids])).logits.float(), -1)[0]
        places = [i - 1 for span in sequence.spans for i in range(span.start, span.stop)]
        values, ids = table[places].topk(3)
        assert scores.top_ids is not None
        assert torch.equal(scores.top_ids, ids)
        torch.testing.assert_close(scores.top_logprobs, values, rtol=1e-5, atol=1e-4)
        assert scores.token_logprobs.tolist() == expected_tokens
    [whole] = sequence_scores(scorer, sequences[:1], top=10 * VOCABULARY)
    assert whole.top_ids is not None
    assert whole.top_logprobs is not None
    assert whole.top_ids.shape[1] == VOCABULARY, "at most the vocabulary"
    torch.testing.assert_close(whole.top_logprobs.exp().sum(1), torch.ones(len(whole.top_ids)))


def groups_of(seed: int = 0) -> list[list[TokenSequence]]:
    random = torch.Generator().manual_seed(seed)
    groups = []
    for size in (3, 1, 4, 2):
        prompt = torch.randint(0, VOCABULARY, (5 + 4 * size,), generator=random).tolist()
        rows = []
        for reply in range(size):
            ids = torch.randint(0, VOCABULARY, (2 + 3 * reply,), generator=random).tolist()
            rows.append(TokenSequence((*prompt, *ids), (Span(len(prompt), len(prompt) + len(ids), 1),)))
        groups.append(rows)
    return groups


@pytest.mark.parametrize("block", [3, 256])
@pytest.mark.parametrize("family", [*FAMILIES, "gpt2", "mamba"])
def test_shared_prompts_give_the_same_means(family: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, and in segments of two blocks."""
    monkeypatch.setattr(blocks, "BLOCK", block)
    model = build_model(VOCABULARY, family=family)
    scorer = Scorer(model)
    assert bool(scorer.max_shared_length) == (family != "mamba")
    groups, wanted = groups_of(), []
    with torch.no_grad():
        for sequence in (sequence for group in groups for sequence in group):
            span = sequence.spans[0]
            wanted.append(float(naive(model, sequence)[0]) / (span.stop - span.start))
    for budget in (30, 70, 4096):
        found = [mean for group in group_logprobs(scorer, groups, budget) for mean in group]
        assert found == pytest.approx(wanted, abs=1e-5, rel=1e-5)


def test_a_model_with_unusual_logits_is_computed_by_its_own_forward(make_model: Callable[..., Any]) -> None:
    model = build_model(VOCABULARY)

    def shift(_module: object, _inputs: object, output: Any) -> Any:
        output.logits = output.logits * 0.5
        return output

    model.register_forward_hook(shift)
    scorer = Scorer(model)
    assert not scorer.max_shared_length
    sequences = random_sequences(3)
    with torch.no_grad():
        expected = [torch.stack(naive(model, sequence)) for sequence in sequences]
    for want, (sums, _) in zip(expected, span_logprobs(scorer, sequences), strict=True):
        torch.testing.assert_close(sums, want, rtol=1e-5, atol=1e-4)


def dialogue_of(turns: int = 3, candidates: int = 4, seed: int = 0) -> list[TokenSequence]:
    """Candidates at each turn of a dialogue, of differing lengths, two of which begin alike, and another dialogue."""
    random = torch.Generator().manual_seed(seed)

    def ids(count: int) -> list[int]:
        return [int(i) for i in torch.randint(0, VOCABULARY, (count,), generator=random)]

    rows, prompt = [], ids(30)
    for turn in range(turns):
        replies = [ids(6 + 5 * number) for number in range(candidates)]
        replies.append(replies[1][:4] + ids(7))
        for reply in replies:
            span = Span(len(prompt), len(prompt) + len(reply), turn)
            # The opening is supervised too, so that the shared part has a gradient.
            rows.append(TokenSequence((*prompt, *reply), (Span(3, 9, 0), span)))
        prompt = prompt + replies[0] + ids(5)
    return [*rows, *random_sequences(2, seed + 1)]


@pytest.mark.parametrize("budget", [1 << 20, 150, 70])
@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral", "gemma"])
def test_a_tree_gives_the_means_and_gradients_of_plain_sequences(
    family: str, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole and cut at subtrees; the tree has several blocks, and none ends where a branch does."""
    monkeypatch.setattr(blocks, "BLOCK", 37)
    model = build_model(VOCABULARY, family=family)
    rows = dialogue_of()
    weights = torch.linspace(-1, 1, 2 * len(rows)).reshape(-1, 2)
    results = []
    for share in (False, True):
        scorer = Scorer(model, share=share)
        assert bool(scorer.max_shared_length) == share
        packs = scorer.pack([[row] for row in rows], budget) if share else [[i] for i in range(len(rows))]
        assert not share or len(packs) == {1 << 20: 1, 150: 3, 70: 9}[budget]
        model.zero_grad()
        means = torch.zeros(len(rows), 2)
        for pack in packs:
            scores = scorer([rows[i] for i in pack])
            part = (scores.sums / scores.counts).reshape(-1, 2)
            torch.autograd.backward([(part * weights[pack]).sum()])
            means[pack] = part.detach()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        results.append((means, gradient))
    (means, gradient), (tree_means, tree_gradient) = results
    assert float((means - tree_means).abs().max()) < 1e-5
    assert float((gradient - tree_gradient).norm() / gradient.norm()) < 1e-4


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_tree_restores_the_attention_of_the_model(family: str) -> None:
    model = build_model(VOCABULARY, family=family)
    ids = torch.tensor([[5, 6, 7, 8]])
    before = model.config._attn_implementation, model(input_ids=ids).logits
    Scorer(model)(dialogue_of())
    assert model.config._attn_implementation == before[0]
    assert torch.equal(model(input_ids=ids).logits, before[1])


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=8),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_in_blocks_each_slot_sees_exactly_its_path(sequences: list[list[int]], size: int, segment: int) -> None:
    tree = build_tree(sequences)
    count, ends = len(tree.ids), torch.tensor(tree.ends)
    slots = [slice(start, min(start + segment, count)) for start in range(0, count, segment)]
    found = [block for each in slots for block in blocks.build_blocks(ends, each, size)]
    seen = {b.start + i: sorted(b.keys[row].tolist()) for b in found for i, row in enumerate(b.visible)}
    assert sorted(seen) == list(range(len(tree.ids)))
    for path in tree.paths:
        for depth, slot in enumerate(path):
            assert seen[slot] == path[: depth + 1]


@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=9), min_size=1, max_size=3), min_size=1, max_size=9
    ),
    st.integers(1, 40),
)
def test_packs_contain_every_bundle_once_within_the_budget(bundles: list[list[list[int]]], budget: int) -> None:
    scorer = Scorer.__new__(Scorer)
    scorer.max_shared_length = 6
    rows = [[TokenSequence(tuple(ids), (Span(1, 2, 0),)) for ids in bundle] for bundle in bundles]
    packs = scorer.pack(rows, budget)
    assert sorted(i for pack in packs for i in pack) == list(range(len(rows)))
    for pack in packs:
        ids = [row.ids for i in pack for row in rows[i]]
        longest = max(map(len, ids))
        slots = len(build_tree(ids).ids) if longest <= 6 else sum(max(len(r.ids) for r in rows[i]) for i in pack)
        assert len(pack) == 1 or longest > 6 or slots <= budget


def test_a_tree_is_not_used_beyond_a_sliding_window() -> None:
    model = build_model(VOCABULARY, family="mistral")
    model.config.sliding_window = 8
    groups = groups_of()
    scorer = Scorer(model)
    assert scorer.max_shared_length == 8
    for group, found in zip(groups, group_logprobs(scorer, groups), strict=True):
        want = [float(sums[0] / counts[0]) for sums, counts in span_logprobs(scorer, group)]
        assert found == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize("family", ["llama", "gemma", "gemma2", "deepseek_v3"])
def test_a_tree_is_computed_in_segments_without_gradients_alone(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the model's own attention is eager (gemma2), and where values are smaller than keys (deepseek)."""
    monkeypatch.setattr(blocks, "BLOCK", 20)
    model, rows = build_model(VOCABULARY, family=family), dialogue_of()
    scorer = Scorer(model)
    assert scorer.max_shared_length
    slots = len(build_tree([row.ids for row in rows]).ids)
    sizes: list[int] = []
    hook = {"hook": lambda _model, _args, kwargs: sizes.append(kwargs["input_ids"].shape[1]), "with_kwargs": True}
    model.base_model.register_forward_pre_hook(**hook)
    whole = scorer(rows).sums.detach()
    assert sizes == [slots]
    sizes.clear()
    with torch.no_grad():
        torch.testing.assert_close(scorer(rows).sums, whole, rtol=1e-5, atol=1e-5)
    assert sizes == [40] * (slots // 40) + [slots % 40]


def test_a_tree_is_not_used_where_rotary_frequencies_depend_on_the_length() -> None:
    """Sequences are longer than the length from which the frequencies are scaled."""
    model = build_model(VOCABULARY, family="phi3")
    scaled = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [8.0] * 4, "rope_theta": 10000.0}
    settings = {"original_max_position_embeddings": 24, "rope_parameters": scaled}
    model = type(model)(type(model.config).from_dict(model.config.to_dict() | settings)).eval()
    rows = [*dialogue_of(turns=1), *groups_of()[1]]
    assert min(len(row.ids) for row in rows) < 24 < max(len(row.ids) for row in rows)
    scorer = Scorer(model)
    assert scorer.max_shared_length == 24
    with torch.no_grad():
        expected = [torch.stack(naive(model, row)) for row in rows]
    for want, (sums, _) in zip(expected, span_logprobs(scorer, rows), strict=True):
        torch.testing.assert_close(sums, want, rtol=1e-5, atol=1e-4)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=8))
def test_in_a_tree_each_sequence_sees_exactly_its_path(sequences: list[list[int]]) -> None:
    tree = build_tree(sequences)
    for sequence, path in zip(sequences, tree.paths, strict=True):
        assert [tree.ids[slot] for slot in path] == sequence
        assert [tree.positions[slot] for slot in path] == list(range(len(sequence)))
        last = path[-1]
        assert [k for k in range(last + 1) if last < tree.ends[k]] == path
    prefixes = {tuple(sequence[: i + 1]) for sequence in sequences for i in range(len(sequence))}
    assert len(tree.ids) == len(prefixes)
    forest = Forest()
    forest.add(map(tuple, sequences))
    assert forest.slots == len(tree.ids)


def test_a_sequence_without_supervised_tokens_is_refused() -> None:
    scorer = Scorer(build_model(VOCABULARY))
    with pytest.raises(ValueError, match="no supervised token"):
        scorer([TokenSequence((1, 2, 3), ())])


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(50, 1000))
def test_batches_contain_everything_once_within_the_budget(lengths: list[int], budget: int) -> None:
    made = list(batches(lengths, budget))
    assert sorted(i for batch in made for i in batch) == list(range(len(lengths)))
    for batch in made:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget
