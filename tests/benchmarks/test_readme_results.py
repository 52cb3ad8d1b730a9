"""The tables of the study are generated from the results and describe them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from benchmarks.readme_results import (
    BEGIN,
    BEGIN_EARLIER,
    BEGIN_FAMILIES,
    BEGIN_REAL,
    BEGIN_ROWS,
    CURVES,
    EARLIER,
    END,
    END_EARLIER,
    END_FAMILIES,
    END_REAL,
    END_ROWS,
    PAGE,
    PICTURE,
    REAL,
    REAL_LONG,
    RESULTS,
    block,
    digest,
    earlier_block,
    families_block,
    main,
    read_curves,
    read_study,
    readme_rows,
    real_block,
    real_rows,
    update,
)
from docs.tools.commands import put_between
from sweet.errors import InputError
from tests.docs.pages import ROOT
from tests.results.study_results import learned, method, study, study_dict
from tests.view.conftest import HOSTILE

EMPTY = "\n\n".join(
    f"before\n\n{begin}\n{end}\n\nbehind\n" for begin, end in ((BEGIN, END), (BEGIN_EARLIER, END_EARLIER))
)
AGAIN = "run: python -m benchmarks.readme_results"


def source_of(picture: Path) -> str | None:
    """Return the digest of the results that a picture was made from."""
    return ET.parse(picture).getroot().findtext("{http://www.w3.org/2000/svg}metadata")


def written(folder: Path, **changes: Any) -> Path:
    """Make a repository with the pages of the blocks, and results of a study."""
    (folder / "README.md").write_text(f"{BEGIN_ROWS}\n{END_ROWS}\n", encoding="utf-8")
    (folder / "docs").mkdir(exist_ok=True)
    (folder / PAGE).write_text(EMPTY, encoding="utf-8")
    file = folder / "micro.json"
    file.write_text(json.dumps({**study_dict(), **changes}), encoding="utf-8")
    return file


def updated(folder: Path, file: Path) -> None:
    update(folder, file, ROOT / EARLIER)


def test_the_tables_and_the_picture_are_those_of_the_results() -> None:
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", PAGE))
    results = read_study(ROOT / RESULTS)
    assert readme == put_between(readme, BEGIN_ROWS, END_ROWS, readme_rows(results)), AGAIN
    assert page == put_between(page, BEGIN, END, block(results, read_curves(ROOT))), AGAIN
    assert page == put_between(page, BEGIN_EARLIER, END_EARLIER, earlier_block(read_study(ROOT / EARLIER))), AGAIN
    assert source_of(ROOT / PICTURE) == digest(ROOT / RESULTS, ROOT / CURVES), AGAIN


def test_the_tables_of_a_real_model_are_those_of_its_results() -> None:
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", PAGE))
    results, longer = read_study(ROOT / REAL, "orders"), read_study(ROOT / REAL_LONG, "orders-long")
    assert readme == put_between(readme, BEGIN_REAL, END_REAL, real_rows(results)), AGAIN
    assert page == put_between(page, BEGIN_REAL, END_REAL, real_block(results, longer)), AGAIN
    assert f"{results.model} after a warm-up" in page


def test_the_rows_of_the_readme_are_three_methods() -> None:
    rows = readme_rows(study(methods=[method(1, "rft"), method(3, "sweet"), method(4, "multi-turn-dpo")])).splitlines()
    assert [row.split("|")[1].strip() for row in rows[2:]] == ["`multi-turn-dpo`", "`sweet`"]


def test_the_table_of_all_families_is_that_of_their_results() -> None:
    page, text = (ROOT / PAGE).read_text(encoding="utf-8"), families_block(ROOT)
    assert page == put_between(page, BEGIN_FAMILIES, END_FAMILIES, text), AGAIN
    [row] = [line for line in text.splitlines() if line.startswith("| `sweet` |")]
    assert row == ("| `sweet` | 47.6 [40.9, 54.3] · 76.0 | 15.2 [9.6, 20.8] · 31.5 |  | 8.5 [1.6, 15.4] · 9.2 |")
    assert "5 seeds, about 128,458 generated tokens each, 500 unseen tasks;" in text
    with pytest.raises(InputError, match="not of 'micro-long'"):
        read_study(ROOT / RESULTS, "micro-long")


def test_each_method_is_compared_with_sweet() -> None:
    text = block(study(methods=[method(1, "rft"), method(3, "sweet"), method(4, "sweet-plus")]))
    assert "| +10.0 [+7.0, +13.0] |" in text
    assert "\nsweet is above rft" in text


def test_the_blocks_are_replaced_and_nothing_else(tmp_path: Path) -> None:
    file = written(tmp_path)
    updated(tmp_path, file)
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert page.startswith(f"before\n\n{BEGIN}\n\n**A small proof ")
    assert page.endswith(f"\n{END_EARLIER}\n\nbehind\n")
    assert (tmp_path / "README.md").read_text(encoding="utf-8").endswith(f"|\n\n{END_ROWS}\n")
    assert source_of(tmp_path / PICTURE) == digest(file)
    updated(tmp_path, file)
    assert (tmp_path / PAGE).read_text(encoding="utf-8") == page


def test_the_block_contains_the_results_and_describes_them() -> None:
    text = block(study())
    assert "small proof on generated tasks and an agent of a million parameters: not the results of the paper" in text
    assert "| `rft` | likelihood of the dialogues that succeeded | +10.0 [+7.0, +13.0] |" in text
    assert "| +10.0 [+7.0, +13.0] |" in text
    assert "| −5.0 [−8.0, −2.0] |" in text
    assert "\nsweet is above zero-shot, rft" in text
    picture = (
        "Success of each method with its interval over seeds; success with the best of N replies at each turn by judge"
    )
    assert f"![{picture}; mean advantage by kind of turn]({PICTURE.name})" in text


def test_the_block_compares_at_equal_time_too() -> None:
    assert "equal time" not in block(study())
    text = block(study(methods=[learned(1, "rft"), learned(3, "sweet")], settings={"equal": "tokens"}))
    assert "| 16.0 % [14.0, 18.0] | +10.0 [+7.0, +13.0] |" in text
    assert "time that `sweet` needs." in text


def test_curves_and_seconds_may_be_those_of_another_study(tmp_path: Path) -> None:
    loaded = study(methods=[{**method(1, "rft"), "seconds": 999.0}, method(3, "sweet"), learned(4, "grpo")])
    quiet = study(methods=[learned(1, "rft"), learned(3, "sweet")], seeds=[0, 1], settings={"equal": "tokens"})
    text = block(loaded, quiet)
    assert "success on validation tasks by generated tokens" in text
    assert "| 16.0 % | +10.0 [+7.0, +13.0] |" in text, "two seeds have no interval worth showing"
    assert "| `rft` | likelihood of the dialogues that succeeded | 16.0 % |" in text
    assert "of 2 seeds on a machine that did nothing else" in text
    (grpo,) = (line for line in text.splitlines() if line.startswith("| `grpo` |"))
    assert "|  |" in grpo, "the curve of a method that the quiet study does not have is not shown"
    file = written(tmp_path)
    updated(tmp_path, file)
    without = (tmp_path / PICTURE).read_bytes()
    (tmp_path / CURVES).parent.mkdir(parents=True)
    (tmp_path / CURVES).write_text(quiet.model_dump_json(), encoding="utf-8")
    updated(tmp_path, file)
    assert (tmp_path / PICTURE).read_bytes() != without
    assert str(CURVES) in (tmp_path / PAGE).read_text(encoding="utf-8")


def test_a_method_that_not_all_seeds_have_finished_says_so() -> None:
    whole = method(1, "multi-turn-dpo")
    partial = {**whole, "success_by_seed": whole["success_by_seed"][:2]}
    text = readme_rows(study(methods=[partial, method(3, "sweet")]))
    assert "| `multi-turn-dpo` | better against worse whole dialogues (2 seeds of 5) |" in text
    assert "of 5)" not in readme_rows(study(methods=[whole, method(3, "sweet")]))


def test_texts_of_the_results_are_no_markup() -> None:
    text = block(study(methods=[method(1, HOSTILE)]))
    assert "\x1b" not in text
    shown = MarkdownIt("commonmark").enable("table").render(text)
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown


def test_a_study_of_other_tasks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    file = written(tmp_path, family="smollm2")
    with pytest.raises(InputError, match="not of 'micro'"):
        updated(tmp_path, file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["readme_results", str(file)])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "smollm2" in capsys.readouterr().err
    assert (tmp_path / PAGE).read_text(encoding="utf-8") == EMPTY
