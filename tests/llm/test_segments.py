"""Prompts that are tokenised segment by segment have the ids that they have as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from sweet.llm import template
from sweet.llm.pretrained import load_tokenizer
from sweet.llm.template import SegmentTokenizer
from tests.learn.builders import SPECIAL, TEMPLATES, build_tokenizer

CHATML = build_tokenizer(TEMPLATES["chatml"])
PLAIN = build_tokenizer(TEMPLATES["chatml"], plain_regex=True)
WORDS = st.sampled_from(
    [*SPECIAL, "<|im_", "start|>", "the fee", " ", "\n", "\n\n", "  7", "<", "|>", "é", "<|im_start|>x"]
)
TEXTS = st.lists(WORDS | st.text(max_size=5), max_size=12).map("".join)


def whole(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


@pytest.mark.parametrize("tokenizer", [CHATML, PLAIN], ids=["chatml", "plain"])
@given(texts=st.lists(TEXTS, max_size=4))
def test_any_texts_have_the_ids_of_the_whole(tokenizer: Any, texts: list[str]) -> None:
    tokenised = SegmentTokenizer(tokenizer)
    for text in [*texts, *texts]:
        assert tokenised.ids(text) == whole(tokenizer, text)
    assert tokenised._split is not None


class Counting:
    """Counts the texts that a tokenizer gets."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.texts = tokenizer, list[str]()
        self.backend_tokenizer = tokenizer.backend_tokenizer

    def __call__(self, text: str, **options: Any) -> Any:
        self.texts.append(text)
        return self.tokenizer(text, **options)


def test_a_segment_is_tokenised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(load_tokenizer("micro"))
    tokenised = SegmentTokenizer(counting)
    begun = "<|user|>A fee.<|end|><|assistant|>"
    tokenised.ids(begun)
    assert counting.texts == ["A fee.", begun], "the first prompt is compared as a whole"
    assert tokenised.ids(begun) == whole(counting.tokenizer, begun)
    tokenised.ids(f"{begun}The tax?<|end|><|user|>A fee.<|end|>")
    assert counting.texts[2:] == ["The tax?"]
    monkeypatch.setattr(template, "MOST_CACHED", 20)
    tokenised.ids("<|user|>It is 7 percent.<|end|>")
    tokenised.ids(begun)
    assert counting.texts[3:] == ["It is 7 percent.", "A fee."], "all were forgotten"


def changed(**flags: bool) -> Any:
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    tokenizer.add_tokens([AddedToken("<mask>", normalized=False, **flags)])
    return tokenizer


def at_the_beginning() -> Any:
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="first"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer_class: Any = PreTrainedTokenizerFast
    return tokenizer_class(tokenizer_object=backend)


def in_python() -> Any:
    class AsItIs:
        def pre_tokenize(self, text: Any) -> None:
            text.split(lambda _, part: [part])

    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(AsItIs())
    return tokenizer


@pytest.mark.parametrize(
    "tokenizer",
    [changed(lstrip=True), changed(rstrip=True), changed(single_word=True), at_the_beginning(), in_python()],
)
def test_where_segments_depend_on_what_is_beside_them_the_whole_is_tokenised(tokenizer: Any) -> None:
    counting = Counting(tokenizer)
    text = "<|im_start|>user\na fee<|im_end|> \n<mask>s<mask> <|im_end|>a fee"
    assert SegmentTokenizer(counting).ids(text) == whole(tokenizer, text)
    assert counting.texts == [text]


def test_a_tokenizer_whose_segments_have_other_ids_gets_the_whole() -> None:
    class Odd(Counting):
        def __call__(self, text: str, **options: Any) -> Any:
            return {"input_ids": [len(text)]}

    tokenised = SegmentTokenizer(Odd(CHATML))
    assert [tokenised.ids("<bos>a fee") for _ in range(2)] == [[10], [10]]


def test_a_tokenizer_that_splits_special_tokens_gets_the_whole() -> None:
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    tokenizer.split_special_tokens = True
    assert (
        SegmentTokenizer(tokenizer).ids("<bos>a fee") == whole(tokenizer, "<bos>a fee") != whole(CHATML, "<bos>a fee")
    )
