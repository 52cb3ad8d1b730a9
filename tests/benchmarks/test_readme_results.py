"""README's block on the study is generated from the results and describes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from PIL import Image

from benchmarks.readme_results import (
    BEGIN,
    BEGIN_EARLIER,
    BEGIN_LONGER,
    CURVES,
    EARLIER,
    END,
    END_EARLIER,
    END_LONGER,
    LONGER,
    PAGE,
    PICTURE,
    RESULTS,
    block,
    digest,
    longer_block,
    main,
    read_curves,
    read_study,
    update,
    update_earlier,
)
from sweet.cli.generated import put_between
from sweet.errors import InputError
from tests.docs.pages import ROOT
from tests.view.conftest import HOSTILE
from tests.view.study_results import learned, method, study, study_dict


def written(folder: Path, **changes: Any) -> Path:
    """A repository with a README and results of a study."""
    (folder / "README.md").write_text(f"before\n\n{BEGIN}\n{END}\n\nbehind\n", encoding="utf-8")
    file = folder / "micro.json"
    file.write_text(json.dumps({**study_dict(), **changes}), encoding="utf-8")
    return file


def test_the_readme_and_its_picture_are_those_of_the_results() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.count(BEGIN) == readme.count(END) == 1
    if not (ROOT / RESULTS).exists():
        assert readme.split(BEGIN)[1].split(END)[0].strip() == "", "a block without results"
        assert not (ROOT / PICTURE).exists()
        pytest.skip(f"there is no {RESULTS} yet")
    again = "run: python -m benchmarks.readme_results"
    assert readme == put_between(readme, BEGIN, END, block(read_study(ROOT / RESULTS), read_curves(ROOT))), again
    with Image.open(ROOT / PICTURE) as image:
        assert image.info["Source"] == digest(ROOT / RESULTS, ROOT / CURVES), again


def test_the_block_on_longer_dialogues_is_that_of_its_results() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = longer_block(read_study(ROOT / LONGER, "micro-long"))
    assert readme == put_between(readme, BEGIN_LONGER, END_LONGER, text), "run: python -m benchmarks.readme_results"
    assert str(LONGER) in text
    with pytest.raises(InputError, match="not of 'micro-long'"):
        read_study(ROOT / RESULTS, "micro-long")


def test_each_method_is_compared_with_sweet_and_with_sweet_plus() -> None:
    difference = {"difference": 0.2, "ci": [0.1, 0.3], "p_value": 0.02, "seeds_ci": [0.05, 0.35]}
    methods = [{**method(1, "rft"), "against_plus": difference}, method(3, "sweet"), method(4, "sweet-plus")]
    text = block(study(methods=methods))
    assert "| `sweet` minus it | `sweet-plus` minus it |" in text
    assert "| +10.0 pp [+7.0, +13.0], p = 0.001 | +20.0 pp [+10.0, +30.0], p = 0.02 |" in text
    assert "above zero for sweet minus rft." in text
    assert "above zero for sweet-plus minus rft." in text
    assert "`sweet-plus` minus it" not in block(study()), "as in results of earlier versions"


def test_the_table_of_the_earlier_study_is_that_of_its_results(tmp_path: Path) -> None:
    page = ROOT / PAGE
    (tmp_path / "docs").mkdir()
    copy = tmp_path / PAGE
    copy.write_bytes(page.read_bytes())
    update_earlier(tmp_path, ROOT / EARLIER)
    assert copy.read_bytes() == page.read_bytes(), "run: python -m benchmarks.readme_results"
    emptied = put_between(page.read_text(encoding="utf-8"), BEGIN_EARLIER, END_EARLIER, "")
    copy.write_text(emptied, encoding="utf-8")
    assert copy.read_bytes() != page.read_bytes()
    update_earlier(tmp_path, ROOT / EARLIER)
    assert copy.read_bytes() == page.read_bytes()


def test_the_block_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    file = written(tmp_path)
    update(tmp_path, file)
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert readme.startswith(f"before\n\n{BEGIN}\n\n### ")
    assert readme.endswith(f"\n{END}\n\nbehind\n")
    with Image.open(tmp_path / PICTURE) as image:
        assert image.info["Source"] == digest(file)
    update(tmp_path, file)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == readme


def test_the_block_contains_the_results_and_describes_them() -> None:
    text = block(study())
    assert "small proof on generated tasks and an agent of a million parameters: not the results of the paper" in text
    assert "5 seeds" in text
    assert "500 unseen tasks" in text
    assert "| `rft` | likelihood of the dialogues that succeeded | 15.0 % [11.0, 19.0] | 25.0 % [20.0, 30.0] |" in text
    assert "| +10.0 pp [+7.0, +13.0], p = 0.001 |" in text
    assert "| −5.0 pp [−8.0, −2.0], p = 0.001 |" in text
    assert "above zero for sweet minus zero-shot, rft." in text
    picture = (
        "Success of each method with its interval over seeds; success with the best of N replies at each turn by judge"
    )
    assert f"![{picture}; mean advantage by kind of turn]({PICTURE})" in text


def test_the_block_says_what_was_equal_and_compares_at_equal_wall_clock_too() -> None:
    assert "learn from the same offline dialogues" in block(study()), "as in results of earlier versions"
    assert "equal wall clock" not in block(study())
    text = block(study(methods=[learned(1, "rft"), learned(3, "sweet")], settings={"equal": "tokens"}))
    assert "let it generate the same number of tokens (about 125,003)" in text
    assert "| `rft` | 125,001 | 1.0 min | 16.0 % [14.0, 18.0] | +7.0 pp [+3.0, +11.0] |" in text


def test_curves_and_seconds_may_be_those_of_another_study(tmp_path: Path) -> None:
    loaded = study(methods=[{**method(1, "rft"), "seconds": 999.0}, method(3, "sweet"), learned(4, "grpo")])
    quiet = study(methods=[learned(1, "rft"), learned(3, "sweet")], seeds=[0, 1], settings={"equal": "tokens"})
    text = block(loaded, quiet)
    assert "success on validation tasks by generated tokens" in text
    assert "| `rft` | 125,001 | 1.0 min | 16.0 % | +7.0 pp |" in text, "two seeds have no interval worth showing"
    assert "time that `sweet` needs." in text
    assert "| `rft` | likelihood of the dialogues that succeeded | 15.0 % [11.0, 19.0] |" in text
    assert "of 2 seeds of the same study, during which the machine did nothing else" in text
    assert "`grpo` | 125,004" not in text, "the curve of a method that the quiet study does not have is not shown"
    file = written(tmp_path)
    update(tmp_path, file)
    without = (tmp_path / PICTURE).read_bytes()
    (tmp_path / CURVES).parent.mkdir(parents=True)
    (tmp_path / CURVES).write_text(quiet.model_dump_json(), encoding="utf-8")
    update(tmp_path, file)
    assert (tmp_path / PICTURE).read_bytes() != without
    assert str(CURVES) in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_a_method_that_not_all_seeds_have_finished_says_so() -> None:
    whole = method(1, "rft")
    partial = {**whole, "success_by_seed": whole["success_by_seed"][:2]}
    text = block(study(methods=[partial, method(3, "sweet")]))
    assert "| `rft` | likelihood of the dialogues that succeeded (2 seeds of 5) |" in text
    assert "of 5)" not in block(study(methods=[whole, method(3, "sweet")]))


def test_a_note_about_the_run_stands_below_the_tables() -> None:
    text = block(study(note="Two seeds ran at a time."))
    assert text.index("| `sweet` |") < text.index("\n\nTwo seeds ran at a time.\n\n") < text.index("\n- ")


def test_texts_of_the_results_are_no_markup() -> None:
    text = block(study(methods=[method(1, HOSTILE)], versions={"torch": HOSTILE}, note=HOSTILE))
    assert "\x1b" not in text
    shown = MarkdownIt("commonmark").enable("table").render(text)
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown


def test_a_study_of_other_tasks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    file = written(tmp_path, family="smollm2")
    with pytest.raises(InputError, match="not of 'micro'"):
        update(tmp_path, file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["readme_results", str(file)])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "smollm2" in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == f"before\n\n{BEGIN}\n{END}\n\nbehind\n"
