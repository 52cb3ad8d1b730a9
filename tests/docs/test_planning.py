"""The plan of the paper's recipe follows from its inputs, and the page shows what the script computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.tools.commands import put_between
from docs.tools.planning import BEGIN, END, INPUTS, MODELS, PAGE, Dialogues, block, memory, of, rows, update, work
from tests.docs.pages import ROOT


def test_the_page_is_current() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert page == put_between(page, BEGIN, END, block()), "run: python -m docs.tools.planning"


def test_every_input_says_what_it_rests_on() -> None:
    assert {one.basis for one in INPUTS.values()} == {
        "paper",
        "published data",
        "assumption",
        "data sheet",
        "the program's default",
    }
    assert all(one.unit for one in INPUTS.values())


def test_tokens_follow_from_the_dialogues() -> None:
    d, stages = Dialogues("code"), work("code")
    agent, critic = stages["rollout, agent"], stages["train-critic"]
    prompts = sum(of("tokens of the opening") + turn * d.exchange for turn in range(int(d.turns)))
    assert agent["tokens_read"] == of("code dialogues") * prompts
    assert critic["tokens_trained"] == of("code epochs") * critic["tokens_read"]
    for kind in ("code", "html"):
        once, often = work(kind), work(kind, 10)
        assert [often[s]["tokens_read"] for s in once] == pytest.approx([10 * s["tokens_read"] for s in once.values()])


def test_memory_is_that_of_the_trainings_estimate() -> None:
    small, large = memory(MODELS["8B"]), memory(MODELS["70B"])
    assert small["states"] == 16 * MODELS["8B"].parameters
    parts = small["states"] / small["devices"] + small["casts"] + small["activations"] + small["buffers"]
    assert small["of_one"] == pytest.approx(parts)
    assert small["of_one"] <= of("memory")
    assert large["casts"] == 2 * (MODELS["70B"].parameters / 80 + 128256 * 8192)
    assert large["of_one"] <= of("memory") < large["of_one"] + large["states"] / large["devices"], "half as many do not"
    assert (small["serve_devices"], large["serve_devices"]) == (1, 4)


def test_rows_grow_with_their_tokens() -> None:
    code, html = rows("code"), rows("html")
    d = Dialogues("code")
    least = d.turns * d.own("tokens a turn") * (2 * of("characters a token") + 6)  # as said, as shown, and as ids
    assert code["rollouts"] > least
    assert all(html[name] > 3 * code[name] for name in code)


def test_the_block_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / PAGE).write_text(f"before\n\n{BEGIN}\n{END}\n\nbehind\n", encoding="utf-8")
    update(tmp_path)
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert page.startswith(f"before\n\n{BEGIN}\n\n### ")
    assert page.endswith(f"\n{END}\n\nbehind\n")
