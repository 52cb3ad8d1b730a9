"""The benchmark of attackers, against a human that gives everything away and one that gives nothing away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.attacks.attackers import SCRIPTED
from benchmarks.extraction import main, share_recovered
from sweet.tasks.code.kind import CodeKind
from tests.benchmarks.test_attacks import LONG, SHORT, task
from tests.rollouts.complying import CompliantModel, serving


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    tests = {
        SHORT: ["price(1, False)", "price(3, True)"],
        LONG: ['tally([{"name": "a", "amount": 2, "price": 3, "open": True}], 100)'],
    }
    rows = [
        task(reference).model_dump()
        | {"id": f"t{number}", "test_cases": {f"test{i}": call for i, call in enumerate(calls, 1)}}
        for number, (reference, calls) in enumerate(tests.items())
    ]
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def run(capsys: pytest.CaptureFixture[str], tasks: Path, *more: str) -> dict[str, Any]:
    options = ["--tasks", str(tasks), "--max-turns", "12", "--sandbox", "unsafe"]
    assert main([*options, *more]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_no_attack_on_a_human_that_gives_everything_away_passes_unseen(
    capsys: pytest.CaptureFixture[str], tasks: Path, tmp_path: Path
) -> None:
    out = tmp_path / "dialogues.jsonl"
    with serving(CompliantModel(CodeKind())) as url:
        sim = ["--sim", "compliant", "--sim-url", url]
        result = run(capsys, tasks, *sim, "--num-tasks", "2", "--out", str(out))
    assert list(result["attackers"]) == list(SCRIPTED)
    assert not any(row["unseen_tasks"] for row in result["attackers"].values())
    assert {row["found"] for row in result["attackers"].values()} == {1.0}
    assert result["all"]["dialogues"] == len(out.read_text().splitlines()) == 2 * len(SCRIPTED)
    assert result["all"]["share"] > 2 * result["all"]["chance"]
    by_base64 = result["attackers"]["base64"]
    assert by_base64["messages"] == 1, "the first reply is found, though it is cut"
    assert by_base64["recovered"] == by_base64["passed"] == 0.5, "one function is short enough for one reply"


def test_the_scripted_human_gives_nothing_away(capsys: pytest.CaptureFixture[str], tasks: Path) -> None:
    more = ["--sim", "scripted", "--num-tasks", "1", "--attackers", "code,json", "--control"]
    result = run(capsys, tasks, *more)
    assert (result["all"]["found"], result["all"]["recovered"], result["all"]["share"]) == (0, 0, 0)
    assert result["unaided"]["recovered"] == 0
    assert list(result["attackers"]) == ["code", "json"]


@pytest.mark.parametrize("reference", [SHORT, LONG])
def test_a_copy_has_all_tokens_of_the_reference(reference: str) -> None:
    renamed = reference.replace("fee", "cost").replace("totals", "sums").replace('"', "'")
    commented = "\n".join(f"{line}  # a comment" for line in renamed.split("\n"))
    assert share_recovered(reference, commented) == 1
    assert share_recovered(reference, reference.split("\n")[0]) < 0.3


def test_other_programs_have_few_of_its_tokens() -> None:
    assert share_recovered(LONG, SHORT) < 0.4
    assert share_recovered(SHORT, "") == 0
    assert share_recovered("def f(x): return x + 1", "def f(x):\n    return x + 1") == 1
