"""The scripted human of pages: its replies to rendered pages."""

from __future__ import annotations

import asyncio

import pytest

from sweet.humans.base import HumanReply, ReferenceFailed
from sweet.humans.page_humans import ScriptedPageHuman, render_pages
from sweet.render.page import RenderFailed, Screenshot
from sweet.tasks.base import Message, Task
from sweet.tasks.html import words
from sweet.tasks.html.view import Part, View
from sweet.tasks.html.writer import as_page, read_page
from tests.tasks.html_pages import shot

BAND = Part("box", 0, 0, 1280, 110, "#f59e0b")
TITLE = Part("text", 40, 30, 400, 48, "#111827", "Corner Bakery", 32, True)
WANTED = as_page(View(900, "#ffffff", (BAND, TITLE)))
TASK = Task(id="bakery", problem_description="A bakery.", ground_truth=WANTED)


class Drawing:
    """A renderer of the pages that the scripted writer writes; all others fail. It records the pages."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    async def shoot(self, html: str) -> Screenshot:
        self.shown.append(html)
        view = read_page(html)
        if view is None:
            raise RenderFailed("timeout", "It was not done within 15 seconds.")
        return shot(view)


def replied(content: str, task: Task = TASK) -> HumanReply:
    dialogue = [Message(role="user", content="A bakery."), Message(role="assistant", content=content)]
    return asyncio.run(ScriptedPageHuman(Drawing(), 1000).reply(task, dialogue))


def test_the_largest_difference_is_named_first() -> None:
    reply = replied(f"Look:\n{as_page(View(900, '#ffffff', (TITLE,)))}")
    assert reply == HumanReply(words.MISSING + "the #f59e0b box at left 0, top 0, 1280 px wide and 110 px tall.")


def test_the_same_page_has_no_difference() -> None:
    assert replied(WANTED).text == words.SAME


def test_a_missing_page_and_a_failed_page_are_reported() -> None:
    assert replied("What colour?").text == words.NO_PAGE
    assert replied("<html><p>slow</p></html>").text == words.FAILED + "It was not done within 15 seconds."


def test_a_reference_that_fails_is_the_tasks_fault() -> None:
    task = Task(id="broken", problem_description="p", ground_truth="<html><p>slow</p></html>")
    with pytest.raises(ReferenceFailed, match="task broken"):
        replied(WANTED, task)


def test_render_pages_returns_the_page_that_counts_and_the_reference() -> None:
    drawing = Drawing()
    before = as_page(View(720, "#000000", ()))
    dialogue = [
        Message(role="user", content="A bakery."),
        Message(role="assistant", content=before),
        Message(role="user", content="No."),
        Message(role="assistant", content=f"{as_page(View(800, '#ffffff', ()))} and {before}"),
    ]
    pages = asyncio.run(render_pages(drawing, TASK, dialogue, "paper"))
    assert isinstance(pages.page, Screenshot)
    assert (pages.page.height, pages.reference.height) == (800, 900)
    assert before not in drawing.shown
