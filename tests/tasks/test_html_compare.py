"""Comparing pages, describing how they differ, and following the description."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweet.tasks.base import Message
from sweet.tasks.html import words
from sweet.tasks.html.compare import differences
from sweet.tasks.html.page import extract_page
from sweet.tasks.html.view import Part, View
from sweet.tasks.html.writer import as_page, first_draft, improve, read_page, write
from tests.tasks.html_pages import VIEWS, score, seen

LIMIT = 1000
TITLE = Part("text", 40, 30, 400, 48, "#111827", "Corner Bakery", 32, True)
BAND = Part("box", 0, 0, 1280, 110, "#f59e0b")
OVEN = Part("image", 700, 160, 500, 300)
HOURS = Part("text", 40, 200, 300, 24, "#111827", "Open from six.", 16)
PAGE = View(900, "#ffffff", (TITLE, BAND, OVEN, HOURS))


def said(page: View, reference: View, limit: int = LIMIT) -> str:
    return words.reply(differences(page, reference), page, reference, limit)


@settings(deadline=None, max_examples=25)
@given(VIEWS)
def test_a_page_does_not_differ_from_itself(view: View) -> None:
    view = seen(view)
    assert differences(view, view) == []
    assert score(view, view) == 1
    assert said(view, view) == words.SAME


@settings(deadline=None, max_examples=25)
@given(VIEWS, VIEWS)
def test_the_reply_does_not_depend_on_the_order_of_parts(page: View, reference: View) -> None:
    page, reference = seen(page), seen(reference)
    dice = random.Random(1)
    other, same = (replace(v, parts=tuple(dice.sample(v.parts, len(v.parts)))) for v in (page, reference))
    assert said(page, reference) == said(other, same)
    assert score(page, reference) == pytest.approx(score(other, same))
    assert 0 < score(page, reference) <= 1


@settings(deadline=None, max_examples=25)
@given(VIEWS, VIEWS)
def test_following_the_replies_leads_to_the_reference(page: View, reference: View) -> None:
    reference = seen(reference)
    for _ in range(len(page.parts) + 4 * len(reference.parts) + 3):
        heard = said(seen(page), reference)
        assert len(heard) <= LIMIT
        if heard == words.SAME:
            return
        page = improve(page, heard)
    raise AssertionError(f"never the same: {said(seen(page), reference)}")


@settings(deadline=None, max_examples=25)
@given(VIEWS)
def test_a_written_page_reads_back(view: View) -> None:
    found = read_page(extract_page(f"Look:\n{as_page(view)}") or "")
    assert found is not None
    assert (found.height, found.background) == (view.height, view.background)
    assert sorted(map(repr, found.parts)) == sorted(map(repr, view.parts))


def test_pages_of_many_long_texts_are_compared_quickly() -> None:
    dice = random.Random(0)

    def page() -> View:
        texts = [" ".join(dice.choices(["order", "fresh", "bread", "from", "seven"], k=60)) for _ in range(200)]
        return View(
            8000, "#ffffff", tuple(Part("text", 0, 40 * i, 600, 40, "#000000", t, 16) for i, t in enumerate(texts))
        )

    began = time.process_time()
    assert differences(page(), page())
    assert time.process_time() - began < 5


def test_the_largest_differences_come_first_and_sections_are_grouped() -> None:
    heard = said(View(900, "#ffffff", (HOURS,)), PAGE)
    assert heard.startswith("What is missing: the image at left 700, top 160, 500 px wide and 300 px tall.")
    assert (
        "What is missing: the #f59e0b box at left 0, top 0, 1280 px wide and 110 px tall; the text “Corner Bakery” at "
        "left 40, top 30, 400 px wide and 48 px tall, in 32 px bold letters in #111827." in heard
    )


@pytest.mark.parametrize(
    ("shown", "heard"),
    [
        (
            replace(TITLE, text="Corner Bakers"),
            "About the text “Corner Bakers” at left 40, top 30: it should read “Corner Bakery”.",
        ),
        (
            replace(TITLE, x=90),
            "About the text “Corner Bakery” at left 90, top 30: it should start at left 40, top 30.",
        ),
        (
            replace(TITLE, color="#ff0000"),
            "About the text “Corner Bakery” at left 40, top 30: its colour should be #111827.",
        ),
        (
            replace(TITLE, font_size=20),
            "About the text “Corner Bakery” at left 40, top 30: its letters should be 32 px.",
        ),
        (replace(TITLE, bold=False), "About the text “Corner Bakery” at left 40, top 30: its letters should be bold."),
        (replace(TITLE, width=800), words.SAME),
        (replace(TITLE, x=43, y=33), words.SAME),
        (
            replace(TITLE, text="Something else"),
            "What is missing: the text “Corner Bakery” at left 40, top 30, 400 px wide and 48 px tall, "
            "in 32 px bold letters in #111827. I do not want the text “Something else” at left 40, top 30.",
        ),
    ],
)
def test_the_differences_of_a_text(shown: Part, heard: str) -> None:
    assert said(replace(PAGE, parts=(shown, BAND, OVEN, HOURS)), PAGE) == heard


def test_boxes_images_background_and_height() -> None:
    shown = replace(BAND, height=60), replace(OVEN, x=600)
    assert said(replace(PAGE, parts=(TITLE, HOURS, *shown)), PAGE) == (
        "About the image at left 600, top 160: it should start at left 700, top 160. "
        "About the #f59e0b box at left 0, top 0: it should be 1280 px wide and 110 px tall."
    )
    assert said(replace(PAGE, background="#000000"), PAGE).startswith("The background of the page should be #ffffff.")
    assert said(replace(PAGE, height=2000), PAGE) == "The page should be 900 px tall, yours has 2000 px."


def test_an_invisible_box_is_not_a_part() -> None:
    hidden = Part("box", 100, 10, 200, 40, "#f59e0b"), Part("box", 100, 500, 200, 40, "#ffffff")
    assert seen(replace(PAGE, parts=(*PAGE.parts, *hidden))) == seen(PAGE)


def test_long_texts_are_cut_before_they_are_compared() -> None:
    long = replace(HOURS, text="word " * 200, height=200)
    page = improve(
        replace(PAGE, parts=(TITLE, BAND, OVEN)),
        said(replace(PAGE, parts=(TITLE, BAND, OVEN)), replace(PAGE, parts=(TITLE, BAND, OVEN, long))),
    )
    assert len(page.parts) == 4
    assert said(page, replace(PAGE, parts=(TITLE, BAND, OVEN, long))) == words.SAME


def conversation(reference: View, temperature: float, seed: int, turns: int = 10) -> tuple[list[float], list[str]]:
    """Return the scores of the writer's pages against a reference, turn by turn, and its replies."""
    dialogue = [Message(role="user", content="Bakery site: a header, a large image, a menu and a footer.")]
    scores, replies = list[float](), list[str]()
    for turn in range(turns):
        replies.append(write(dialogue, temperature, 100 * seed + turn))
        page = read_page(extract_page(replies[-1]) or "")
        assert page is not None
        scores.append(score(seen(page), reference))
        if replies[-1].startswith("I WANT TO ANSWER:"):
            break
        heard = said(seen(page), reference)
        dialogue += [Message(role="assistant", content=replies[-1]), Message(role="user", content=heard)]
    return scores, replies


def test_the_writer_improves_at_every_turn_and_answers_when_all_is_right() -> None:
    scores, replies = conversation(PAGE, 0.0, 1)
    assert scores[-1] == 1 > scores[0]
    assert scores == sorted(scores)
    assert replies[-1].startswith("I WANT TO ANSWER:\n<html>")
    assert conversation(PAGE, 0.0, 2)[1] == replies, "without a temperature the seed makes no difference"


def test_at_a_temperature_the_writer_makes_mistakes_drawn_from_its_seed() -> None:
    assert conversation(PAGE, 1.0, 3) == conversation(PAGE, 1.0, 3)
    rows = [replace(HOURS, y=240 + 60 * i, text=f"Dish number {i * i}", color="#ef4444") for i in range(12)]
    long = View(1200, "#fef3c7", (*PAGE.parts, *rows))
    last = {round(conversation(long, 1.0, seed)[0][-1], 3) for seed in range(12)}
    assert len(last) >= 4
    assert max(last) - min(last) > 0.1


def test_the_writer_answers_at_its_tenth_turn() -> None:
    many = [replace(HOURS, y=40 * i, text=f"line {i} of {i * i}") for i in range(90)]
    _, replies = conversation(View(4000, "#ffffff", tuple(many)), 0.0, 0, turns=12)
    assert len(replies) == 10
    assert [reply.startswith("I WANT TO ANSWER:") for reply in replies] == [False] * 9 + [True]


@settings(deadline=None, max_examples=25)
@given(st.text(), st.text(), st.floats(0, 2), st.integers(0, 2**31))
def test_the_writer_writes_a_page_whatever_the_human_says(
    request_text: str, heard: str, temperature: float, seed: int
) -> None:
    dialogue = [Message(role="user", content=request_text)]
    assert extract_page(write(dialogue, temperature, seed))
    dialogue += [Message(role="assistant", content="no page"), Message(role="user", content=heard)]
    assert extract_page(write(dialogue, temperature, seed))


def test_the_first_draft_follows_the_words_of_the_request() -> None:
    draft = first_draft("Law firm: a menu, a banner, three columns, a contact form, a footer.")
    assert [part.text for part in draft.parts if part.kind == "text"][:2] == ["Law firm", "Home"]
    assert sum(part.kind == "image" for part in draft.parts) == 1
    assert len(first_draft("Blog").parts) == 1
