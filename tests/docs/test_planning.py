"""The plan of the paper's recipe follows from its inputs, and the page shows what the script computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.tools.planning import MEASURED, MODELS, Dialogues, main, measure, memory, plan, read_measured, rows, work
from docs.tools.planning_inputs import INPUTS, of
from docs.tools.planning_page import BEGIN, END, PAGE, block, update
from sweet.cli.generated import put_between
from sweet.runs.run import Run
from tests.docs.pages import ROOT
from tests.stages.learn_runs import AnyConfig


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return plan(read_measured(ROOT))


def test_the_page_is_current(found: dict[str, Any]) -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert page == put_between(page, BEGIN, END, block(found)), "run: python -m docs.tools.planning_page"


def test_every_input_says_what_it_rests_on() -> None:
    assert {one.basis for one in INPUTS.values()} == {
        "paper",
        "published data",
        "assumption",
        "data sheet",
        "the program's default",
    }
    assert all(one.unit for one in INPUTS.values())


def test_operations_are_two_a_token_forward_and_six_in_training() -> None:
    n, d = MODELS["8B"].parameters, Dialogues("code")
    stages = work("code", MODELS["8B"])
    actor = stages["rollout, agent"]
    prompts = sum(of("tokens of the opening") + turn * d.exchange for turn in range(int(d.turns)))
    assert actor["tokens_read"] == of("code dialogues") * prompts
    assert actor["flops"] == pytest.approx(2 * n * (actor["tokens_read"] + actor["tokens_written"]))
    seconds = 2 * n * (actor["tokens_read"] / 0.4 + actor["tokens_written"] / 0.05) / of("peak")
    assert actor["gpu_hours"] == pytest.approx(seconds / 3600)
    critic = stages["train-critic"]
    assert critic["tokens_trained"] == of("code epochs") * critic["tokens_read"]
    assert critic["flops"] == pytest.approx(n * (2 * critic["tokens_read"] + 6 * critic["tokens_trained"]))
    html = work("html", MODELS["8B"])["rollout, human"]
    assert html["flops"] == work("html", MODELS["70B"])["rollout, human"]["flops"], "the human is the same"


def test_work_grows_with_the_dialogues() -> None:
    for kind in ("code", "html"):
        once, often = work(kind, MODELS["70B"]), work(kind, MODELS["70B"], 10)
        assert [often[s]["flops"] for s in once] == pytest.approx([10 * one["flops"] for one in once.values()])


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


def test_limits_break_at_the_first_scale_that_passes_them(found: dict[str, Any]) -> None:
    for kind in found["limits"].values():
        for one in (one for of_model in kind.values() for one in of_model.values()):
            over = [scale for scale, value in one["values"].items() if value > one["limit"]]
            assert one["breaks_at"] == (over[0] if over else None)
            assert (one["full_at"] is not None and one["full_at"] < 100) == bool(over)


def test_small_runs_are_measured(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    with run.attempt("eval", AnyConfig()) as attempt:
        draft = attempt.start_artifact("scores")
        draft.path.write_text("{}\n" * 4)
        attempt.finish_artifact(draft, rows=4)
    told = measure([run.path], cores=2)
    assert told["rows"] == {"code": {"scores": {"rows": 4, "bytes": 12}}}
    assert 0 < told["seconds"]["answer"] < 10


def test_it_prints_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["planning"])
    main()
    assert json.loads(capsys.readouterr().out)["inputs"]["candidates"] == {
        "value": 16,
        "unit": "per turn",
        "basis": "paper",
    }


def test_the_block_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    for path in ("docs", "benchmarks/results"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / MEASURED).write_bytes((ROOT / MEASURED).read_bytes())
    (tmp_path / PAGE).write_text(f"before\n\n{BEGIN}\n{END}\n\nbehind\n", encoding="utf-8")
    update(tmp_path)
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert page.startswith(f"before\n\n{BEGIN}\n\n### ")
    assert page.endswith(f"\n{END}\n\nbehind\n")
