"""The page in a reply: where it starts and ends, and the rest that the human sees."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.tasks.base import Message, ProtocolName, Task
from sweet.tasks.html.kind import HtmlKind, Prompts
from sweet.tasks.html.page import extract_page, rewrite_images

PAGE = "<html><body><p>Hi</p></body></html>"


@pytest.mark.parametrize(
    ("text", "page"),
    [
        (PAGE, PAGE),
        (f"Here:\n```html\n<!DOCTYPE html>\n{PAGE}\n```\nWell?", PAGE),
        (f"{PAGE}\n<html><p>another</p></html>", PAGE),
        ('<HTML lang="en"><p>a</p></HTML >', '<HTML lang="en"><p>a</p></HTML >'),
        ("<html\n  lang=en>\n<p>a</p></html>", "<html\n  lang=en>\n<p>a</p></html>"),
        ("so <body class='x'><p>a</p></body> it is", "<body class='x'><p>a</p></body>"),
        (f"<body><p>a</p></body> {PAGE}", PAGE),
        ("```html\n<html><body><p>cut off\n```\nSorry.", "<html><body><p>cut off"),
        ("<html><body><p>cut off", "<html><body><p>cut off"),
        ("<body><p>cut off\n", "<body><p>cut off"),
        (f"<!-- <html><p>old</p></html> -->\n{PAGE}", PAGE),
        ("<html><!-- </html> --><p>a</p></html>", "<html><!-- </html> --><p>a</p></html>"),
        ("<html><script>'</html>'</script><p>a</p></html>", "<html><script>'</html>'</script><p>a</p></html>"),
        (f"I write an <html> page:\n{PAGE}", PAGE),
        (f"I write it between <html> and </html>:\n{PAGE}", PAGE),
        (f"No <script> this time. {PAGE}<script></script>", PAGE),
        (f"I never close a comment: <!-- {PAGE}", PAGE),
        ("An <html> page would do.", None),
        ("<htmlx><p></p></htmlx>", None),
        ("What colour is the header?", None),
        ("", None),
    ],
)
def test_the_page_in_a_reply(text: str, page: str | None) -> None:
    assert extract_page(text) == page


@pytest.mark.parametrize(
    "text",
    ["</html>" * 50_000 + "<html>" * 50_000, "<html " + "</html>" * 50_000, "<body>" * 50_000, "<!--" * 50_000],
)
def test_a_hostile_text_is_parsed_quickly(text: str) -> None:
    began = time.process_time()
    extract_page(text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "page"),
    [
        (f"a {PAGE} b", PAGE),
        ('<body id="x"><p>a</p></body>', '<body id="x"><p>a</p></body>'),
        ("<HTML><p>a</p></HTML>", None),
        ("<html><body><p>cut off</body>", "<body><p>cut off</body>"),
        (f"an <html> page: {PAGE}", f"<html> page: {PAGE}"),
    ],
)
def test_protocol_upstream_accepts_only_exact_tags(text: str, page: str | None) -> None:
    assert extract_page(text, "upstream") == page


@given(st.text(alphabet="<>/!-htmlbody `\n\"'"), st.sampled_from(["paper", "upstream"]))
def test_any_text_has_a_page_or_none(text: str, protocol: ProtocolName) -> None:
    page = extract_page(text, protocol)
    assert page is None or (page in text and page.lower().startswith(("<html", "<body")))


@given(st.text(st.characters(exclude_characters="<>")), st.text(st.characters(exclude_characters="<>")))
def test_a_whole_page_is_found_in_any_prose(before: str, after: str) -> None:
    assert extract_page(before + PAGE + after) == extract_page(before + PAGE + after, "upstream") == PAGE


@pytest.mark.parametrize(
    ("address", "fixed"),
    [
        ("https://source.unsplash.com/random/800x600/?cat,dog", "https://picsum.photos/id/48/800/600"),
        ("https://source.unsplash.com/random/80x60?sea", "https://picsum.photos/id/48/80/60"),
        ("https://source.unsplash.com/random/80x60", "https://picsum.photos/id/48/80/60"),
        ("https://picsum.photos/300/200", "https://picsum.photos/id/48/300/200"),
        ("https://picsum.photos/300/200?random=1", "https://picsum.photos/id/48/300/200?random=1"),
        ("https://picsum.photos/id/48/300/200", "https://picsum.photos/id/48/300/200"),
        ("https://picsum.photos/id/7/300/200", "https://picsum.photos/id/7/300/200"),
        ("https://example.org/random/80x60", "https://example.org/random/80x60"),
    ],
)
def test_random_images_become_one(address: str, fixed: str) -> None:
    for around in ('<img src="{}">', "background: url('{}')", "url({})"):
        page = around.format(address)
        assert rewrite_images(page) == around.format(fixed) == rewrite_images(rewrite_images(page))
    assert extract_page(f"<body><img src='{address}'></body>") == f"<body><img src='{fixed}'></body>"


@pytest.mark.parametrize(
    ("output", "content", "answer", "ends"),
    [
        (PAGE, PAGE, PAGE, False),
        ("What colour?", "What colour?", None, False),
        (f"blue, an <html> page OUTPUT: Here.\n{PAGE}", f"Here.\n{PAGE}", PAGE, False),
        (f"hm OUTPUT: {PAGE} OUTPUT: <html><p>b</p></html>", PAGE, PAGE, False),
        ("<html><p>OUTPUT: 3</p></html>", "<html><p>OUTPUT: 3</p></html>", "<html><p>OUTPUT: 3</p></html>", False),
        (f"I WANT TO ANSWER:\n{PAGE}", f"I WANT TO ANSWER:\n{PAGE}", PAGE, True),
        (f"{PAGE}\n**I want to answer:**", f"{PAGE}\n**I want to answer:**", PAGE, True),
        ("I WANT TO ANSWER:", "I WANT TO ANSWER:", None, True),
        (
            "<html><p>I want to answer: yes</p></html>",
            "<html><p>I want to answer: yes</p></html>",
            "<html><p>I want to answer: yes</p></html>",
            False,
        ),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_a_reply_is_parsed(output: str, content: str, answer: str | None, ends: bool, last: bool) -> None:
    move = HtmlKind().move(output, last=last)
    assert (move.content, move.answer, move.ends) == (content, answer, ends)


def test_protocol_upstream_accepts_markers_anywhere() -> None:
    kind = HtmlKind()
    inside = "<html><p>I WANT TO ANSWER: yes</p></html>"
    assert kind.move(inside, last=False, protocol="upstream").ends
    assert not kind.move(f"{PAGE} I want to answer:", last=False, protocol="upstream").ends
    cut = kind.move("<html><p>OUTPUT: 3</p></html>", last=False, protocol="upstream")
    assert (cut.content, cut.answer) == (" 3</p></html>", None)


def test_the_agents_prompt_states_the_protocol() -> None:
    for word in ("I WANT TO ANSWER:", "OUTPUT:", "{turns} turns", "Tailwind", "picsum.photos/id/48", "whole page"):
        assert word in Prompts.packaged().agent


def test_the_humans_prompt_has_the_dialogue_without_sources() -> None:
    task = Task(id="t", problem_description="A bakery.", ground_truth="<html><p>secret</p></html>")
    said = [
        Message(role="user", content="A bakery."),
        Message(role="assistant", content=f"Look:\n{PAGE}\nGood?"),
        Message(role="user", content="Larger."),
    ]
    (message,) = HtmlKind().human_prompt(task, said)
    assert "You:\n    A bakery.\nDesigner:\n    Look:\n    (a page)\n    Good?\nYou:\n    Larger." in message.content
    assert "<html>" not in message.content.replace("Never write HTML", "")
    assert "secret" not in message.content
    assert "{" not in message.content
    (alone,) = HtmlKind().human_prompt(task, [])
    assert "A bakery." not in alone.content
    assert "WHAT WAS SAID" not in alone.content
    assert "{" not in alone.content
    assert alone.content.startswith("You play a person")
    assert "Compare the first screenshot" in alone.content
    assert message.content.index("designer's page as it is now") < message.content.index("page you have in mind")
