"""Dialogues with screenshots: the position of images in the ids, the model's inputs for them, and the head's scores."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweet.errors import SweetError, UsageError
from sweet.learn.critic import RegressionCritic
from sweet.learn.head import attach_head
from sweet.learn.logprobs import Scorer, pack_bundles, span_values
from sweet.learn.lora import LoraSettings, add_lora
from sweet.learn.page_encoder import FAILED, NO_PAGE, PageEncoder
from sweet.learn.sequences import TokenSequence
from sweet.learn.tokens import ChatEncoder
from sweet.learn.vision_processor import VisionProcessor
from sweet.llm.base import Reply
from sweet.llm.pretrained import is_vision_model, load_config, load_model, load_tokenizer
from sweet.tasks.trajectory import Turn
from tests.learn.builders import TEMPLATES
from tests.learn.sighted import FAMILIES, PaintedScreenshots, make_sighted, paint
from tests.learn.sighted_data import BLUE, BOUND, BROKEN, RED, REFERENCE, SHOTS, TALL, dialogue, page_of
from tests.learn.turns import asked_turn
from tests.render.pictures import make_clip


class Sighted:
    """A model with a head that says something, and what shows it dialogues."""

    def __init__(self, name: str, folder: Path, shots: dict[str, bytes | str] = SHOTS) -> None:
        self.name, self.tokenizer, self.folder = name, load_tokenizer(name), folder
        self.model = load_model(name, "cpu", tokenizer=self.tokenizer)
        torch.manual_seed(3)
        torch.nn.init.normal_(attach_head(self.model).weight)
        self.show(folder, shots)

    def show(self, folder: Path, shots: dict[str, bytes | str]) -> None:
        folder.mkdir(exist_ok=True)
        self.vision, self.screenshots = VisionProcessor(self.name, BOUND), PaintedScreenshots(folder, shots)
        self.encoder = PageEncoder(self.tokenizer, self.vision, self.screenshots, page_of)
        self.critic = RegressionCritic(self.model, self.encoder)

    def encode(self, *said: str, max_length: int | None = None, **turn: Any) -> TokenSequence:
        shown = self.encoder.dialogue(dialogue(*said, **turn), "You build.", hidden=REFERENCE, max_length=max_length)
        (sequence,) = shown.sequences
        return sequence

    def runs(self, sequence: TokenSequence) -> list[int]:
        """How long each run of placeholders is."""
        return [len(list(ids)) for token, ids in groupby(sequence.ids) if token == self.vision.token]

    def text(self, ids: Any) -> str:
        return str(self.tokenizer.decode(list(ids))).replace("<|image_pad|>", "")


@pytest.fixture(scope="module", params=FAMILIES)
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sighted:
    folder = tmp_path_factory.mktemp("sighted")
    return Sighted(make_sighted(folder / "model", request.param), folder)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Sighted:
    folder = tmp_path_factory.mktemp("sighted")
    return Sighted(make_sighted(folder / "model"), folder)


def test_c_comes_first_and_each_page_after_its_reply(one: Sighted) -> None:
    sequence = one.encode(f"See: {RED}", f"Better: {BLUE}")
    assert [picture.path for picture in sequence.images] == [one.screenshots(page) for page in (REFERENCE, RED, BLUE)]
    assert one.runs(sequence) == [15, 15, 15]  # 40 x 24 pixels, 64 a token
    first, second = sequence.spans
    assert one.text(sequence.ids[: first.start]).count("<|vision_end|>") == 1
    assert one.text(sequence.ids[first.start : first.stop]) == f"See: {RED}<|im_end|>"
    seen = "\n<|im_start|>user\n<|vision_start|><|vision_end|>\n"
    assert one.text(sequence.ids[first.stop : first.end]) == seen
    assert one.text(sequence.ids[first.end : second.start]) == "It is 0 off.<|im_end|>\n<|im_start|>assistant\n"
    assert one.text(sequence.ids[second.stop :]) == seen
    assert second.end == len(sequence.ids)
    assert REFERENCE not in one.text(sequence.ids)


def test_missing_pages_are_described_in_words(one: Sighted) -> None:
    sequence = one.encode("What do you sell?", f"See: {BROKEN}")
    assert len(sequence.images) == 1
    asked, broken = (one.text(sequence.ids[span.stop : span.end]) for span in sequence.spans)
    assert asked.endswith(f"user\n{NO_PAGE}\n")
    assert broken.endswith(f"user\n{FAILED}it took longer than 15 seconds\n")


def test_a_truncated_reply_has_no_supervised_end(one: Sighted) -> None:
    whole, cut = one.encode(f"See {RED}"), one.encode(f"See {RED}", finish_reason="length")
    assert whole.ids == cut.ids
    assert whole.spans[0].stop == cut.spans[0].stop + 1
    assert whole.spans[0].end == cut.spans[0].end


def test_large_screenshots_are_scaled_down(one: Sighted) -> None:
    sequence = one.encode(f"See {TALL}")
    _, tall = sequence.images
    pixels, grid = one.vision.patches(tall)
    assert tall.tokens == one.runs(sequence)[1] == len(pixels) // 4 == int(grid.prod()) // 4
    assert 0.5 * BOUND <= tall.tokens * 64 <= BOUND
    whole = VisionProcessor(one.name).picture(tall.path)
    assert whole.tokens == 128 * 640 // 64


@pytest.mark.parametrize("posing", ["<|image_pad|>", "<|video_pad|>", "\ue0000\ue001", "<|vision_start|><|image_pad|>"])
def test_text_cannot_be_mistaken_for_an_image(one: Sighted, posing: str) -> None:
    ids = tuple(one.tokenizer(f"{posing} {RED}", add_special_tokens=False)["input_ids"])
    for recorded in (None, ids):
        sequence = one.encode(f"{posing} {RED}", f"{posing}{BLUE}", token_ids=recorded)
        assert len(one.runs(sequence)) == len(sequence.images) == 3
    words = dialogue("What?").model_copy(update={"dialogue_history": (Turn(role="user", content=posing),) * 1})
    history = (*words.dialogue_history, Turn(role="assistant", content=RED, output=RED))
    shown = one.encoder.dialogue(words.model_copy(update={"dialogue_history": history}), posing, hidden=REFERENCE)
    assert [len(one.runs(sequence)) for sequence in shown.sequences] == [2]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.text(max_size=12), st.sampled_from([RED, BLUE, TALL, BROKEN, ""])), min_size=1, max_size=4)
)
def test_the_number_of_placeholders_is_the_number_of_image_tokens(one: Sighted, said: list[tuple[str, str]]) -> None:
    shown = one.encoder.dialogue(dialogue(*(text + page for text, page in said)), None, hidden=REFERENCE)
    turns = [span.turn for sequence in shown.sequences for span in sequence.spans]
    assert turns == [2 * number + 1 for number in range(len(said))]
    for sequence in shown.sequences:
        assert one.runs(sequence) == [picture.tokens for picture in sequence.images]
        assert min(sequence.ids) >= 0
        assert all(0 < span.start < span.stop < span.end <= len(sequence.ids) for span in sequence.spans)


def test_the_length_includes_images_and_dropped_turns_drop_theirs(one: Sighted) -> None:
    replies = [f"See {RED}", f"See {BLUE}", f"See {RED}"]
    whole = one.encode(*replies)
    short = one.encode(*replies, max_length=len(whole.ids) - 1)
    assert len(short.ids) <= len(whole.ids) - 15
    assert [picture.path for picture in short.images] == [one.screenshots(page) for page in (REFERENCE, BLUE, RED)]
    assert [span.turn for span in short.spans] == [3, 5]
    with pytest.raises(UsageError, match="last turn"):
        one.encode(*replies, max_length=40)


# What the model makes of them ----------------------------------------------------------------------------------


def test_scores_are_means_of_the_model_s_own_states(each: Sighted) -> None:
    said = [f"See {RED}", "What do you sell?", f"See {TALL}"]
    sequence = each.encode(*said)
    ids = torch.tensor([sequence.ids])
    prepared = [each.vision.patches(picture) for picture in sequence.images]
    with torch.no_grad():
        states = each.model(
            input_ids=ids,
            pixel_values=torch.cat([pixels for pixels, _ in prepared]),
            image_grid_thw=torch.stack([grid for _, grid in prepared]),
            mm_token_type_ids=(ids == load_config(each.name).image_token_id).int(),
            output_hidden_states=True,
        ).hidden_states[-1][0]
    head = each.model.regression_head
    weight, bias = head.weight[0].detach(), head.bias.detach()
    expected = {s.turn: float(states[: s.end].mean(0) @ weight + bias) for s in sequence.spans}
    (found,) = each.critic.turn_scores([dialogue(*said)], "You build.")
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_scores_depend_on_each_image_seen_so_far(each: Sighted, tmp_path: Path) -> None:
    said = dialogue(f"See {RED}", f"See {BLUE}")
    (before,) = each.critic.turn_scores([said], None)
    try:
        for changed, moved in ((REFERENCE, {1, 3}), (RED, {1, 3}), (BLUE, {3})):
            each.show(tmp_path / changed[6:9], SHOTS | {changed: paint("white", corner="black")})
            (after,) = each.critic.turn_scores([said], None)
            assert {turn for turn in after if abs(after[turn] - before[turn]) > 1e-4} == moved
    finally:
        each.show(each.folder, SHOTS)


def test_a_batch_gives_what_each_gives_alone(each: Sighted) -> None:
    rows = [each.encode(*said) for said in ([RED], [TALL, BLUE], ["What?"], [f"{BLUE} for the bakery", RED, BROKEN])]
    rows.append(ChatEncoder(each.tokenizer).dialogue(dialogue("No picture at all."), None).sequences[0])
    alone = [span_values(each.critic.scorer, [row])[0] for row in rows]
    with torch.inference_mode():
        found = each.critic.scorer(rows).values
    assert found is not None
    assert torch.allclose(found, torch.cat(alone), atol=2e-5)


def test_equal_ids_with_different_images_are_different_sequences(one: Sighted) -> None:
    red, blue = one.encode(f"See {RED}"), one.encode(f"See {BLUE}")
    twin = TokenSequence(red.ids, red.spans, (red.images[0], blue.images[1]))
    assert twin != red
    values = [float(v) for v in torch.cat(span_values(one.critic.scorer, [red, twin]))]
    assert abs(values[0] - values[1]) > 1e-4
    assert pack_bundles([[red, twin]], 10_000, 1 << 20) == [[0]]
    with torch.inference_mode():
        together = one.critic.scorer([red, twin]).values
    assert together is not None
    assert together.tolist() == pytest.approx(values, abs=2e-5)


def test_a_reply_at_a_turn_scores_as_in_its_dialogue(each: Sighted) -> None:
    said = dialogue(f"See {RED}", f"See {BLUE}", "What do you sell?")
    (whole,) = each.critic.turn_scores([said], "You build.")
    for turn in said.agent_turns:
        texts = [said.dialogue_history[turn].said, f"Or {TALL}", f"Or {BROKEN}"]
        asked = asked_turn(said.observation(turn, "You build."), REFERENCE, [Reply(text) for text in texts], turn=turn)
        (scored,) = each.critic.judge([asked])
        assert scored[0].score == pytest.approx(whole[turn], rel=1e-4, abs=1e-4)
        assert len({reply.score for reply in scored}) == 3
    assert {REFERENCE, RED, BLUE, TALL, BROKEN} <= set(each.screenshots.requested)


def test_text_without_images_is_computed_as_text(each: Sighted) -> None:
    encoder = ChatEncoder(each.tokenizer)
    rows = [encoder.dialogue(dialogue("One.", word), None).sequences[0] for word in ("Two.", "Three.")]
    scorer = Scorer(each.model)
    assert scorer.max_shared_length > 0
    plain = Scorer(each.model, share=False)
    with torch.inference_mode():
        assert torch.allclose(scorer(rows).sums, plain(rows).sums, atol=1e-3)


def test_a_required_image_changes_neither_scores_nor_gradients(each: Sighted) -> None:
    encoder = ChatEncoder(each.tokenizer)
    rows = [encoder.dialogue(dialogue("One.", word), None).sequences[0] for word in ("Two.", "Three of them.")]
    found = []
    for required in (False, True):
        scorer = Scorer(each.model, share=False)
        if required:
            scorer.require_images(each.vision)
        values = scorer(rows).values
        assert values is not None
        torch.autograd.backward([values.sum()])
        found.append((values.detach(), {name: p.grad for name, p in each.model.named_parameters()}))
        each.model.zero_grad()
    (plain, gradients), (padded, with_tower) = found
    assert torch.allclose(padded, plain, atol=1e-5)
    tower = [name for name in gradients if ".visual." in name]
    assert tower
    for name, gradient in gradients.items():
        same = with_tower[name]
        if name in tower:
            assert gradient is None
            assert same is not None
            assert not same.any()
        else:
            assert same is not None
            assert torch.allclose(same, gradient, rtol=1e-3, atol=1e-4)


def test_only_the_language_model_is_adapted(each: Sighted) -> None:
    pytest.importorskip("peft")
    model = load_model(each.name, "cpu")
    add_lora(model, LoraSettings(2, 4))
    adapted = [name for name, module in model.named_modules() if hasattr(module, "lora_A")]
    assert len(adapted) == 2 * 7  # of each layer four projections of the attention, three of the feed-forward
    assert all("language_model" in name for name in adapted)


# What is refused -----------------------------------------------------------------------------------------------


def test_a_missing_or_changed_screenshot_is_an_error(one: Sighted, tmp_path: Path) -> None:
    path = tmp_path / "shot.png"
    path.write_bytes(paint("red"))
    picture = one.vision.picture(path)
    path.write_bytes(paint("red", 200, 8))
    with pytest.raises(SweetError, match="changed"):
        one.vision.patches(picture)
    path.unlink()
    with pytest.raises(SweetError, match="cannot be read"):
        VisionProcessor(one.name).patches(picture)
    with pytest.raises(SweetError, match="cannot be shown"):
        one.vision.picture(path)


def test_a_template_without_images_is_refused(one: Sighted) -> None:
    blind = load_tokenizer(one.name)
    blind.chat_template = TEMPLATES["chatml"].replace("m['content']", "(m['content'] | string)")
    with pytest.raises(UsageError, match="does not support images"):
        PageEncoder(blind, one.vision, one.screenshots, page_of)


def test_a_model_with_other_image_inputs_is_refused(tmp_path: Path) -> None:
    name = make_clip(tmp_path / "clip")
    assert is_vision_model(name)
    with pytest.raises(UsageError, match="differ from those of Qwen2-VL"):
        VisionProcessor(name)
