"""The plots and the page of a study: with all or some parts, escaped, equal to the results, without matplotlib."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sweet.errors import InputError, UsageError
from sweet.study import settings as study_settings
from sweet.study.results import StudyResults, read_results
from sweet.view.study import plots, study_series, write_report
from sweet.view.study.display_names import METHODS, about, known_first
from sweet.view.study.study_page import page
from sweet.view.text import printable_line
from tests.docs.pages import ROOT
from tests.view.conftest import HOSTILE
from tests.view.study_results import SEEDS, around, learned, method, study, study_dict
from tests.view.test_dialogues_page import read

PARTS = ["success", "best-of-turns", "best-of", "offline", "credit"]


def picture(png: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(png))
    image.load()
    return image


def colours(png: bytes) -> set[str]:
    """Return the colours of many pixels."""
    counted = picture(png).convert("RGB").getcolors(1 << 24) or []
    return {f"#{bytes(colour).hex()}" for count, colour in counted if isinstance(colour, tuple) and count > 300}


@pytest.fixture(scope="module")
def drawn() -> dict[str, bytes]:
    return plots.plots(study())


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pictures, which are drawn quickly."""
    monkeypatch.setattr(plots, "DPI", 40)


def wanted(*names: str) -> set[str]:
    return {name.lower() for name in names}


def test_every_part_is_drawn_at_a_width_that_a_page_has_room_for(drawn: dict[str, bytes]) -> None:
    assert list(drawn) == PARTS
    for name, png in drawn.items():
        width, height = picture(png).size
        assert 1100 < width < 1500
        # The plot of success has a row for each method.
        assert 600 < height < (400 + 60 * len(METHODS) if name == "success" else 1600)
    assert wanted(plots.BLUE, plots.SKY, plots.ORANGE, plots.GREY) <= colours(drawn["success"])
    judges = wanted(plots.BLUE, plots.VERMILION, plots.GREEN, plots.INK)
    assert judges <= colours(drawn["best-of"])
    assert judges | wanted(plots.ORANGE) <= colours(drawn["best-of-turns"])


def test_the_page_says_what_was_played_and_by_whom() -> None:
    assert "a million parameters" in about("micro")
    assert "a million parameters" in "".join(page(study(), {}))
    result = "".join(page(study(family="micro-long", model="SmolLM2 <i>"), {}))
    assert "long dialogues and SmolLM2 &lt;i&gt;" in result
    assert "a million parameters" not in result


def test_what_is_not_there_is_not_drawn() -> None:
    only = study(methods=[method(0, "sweet")], best_of=None, best_of_turns=None, offline=None, credit=None)
    assert list(plots.plots(only)) == ["success"]
    assert not wanted(plots.SKY, plots.ORANGE) & colours(plots.plots(only)["success"])
    text = "".join(page(only, {}))
    assert 'id="success"' in text
    assert not [part for part in PARTS[1:] if f'id="{part}"' in text]
    assert plots.plots(study(methods=[])).keys() == {*PARTS[1:]}


@pytest.mark.usefixtures("coarse")
def test_intervals_that_are_not_known_are_no_obstacle() -> None:
    bare = study_dict()
    for one in bare["methods"]:
        for name in [name for name in one if name.endswith("_ci")]:
            one[name] = None
        if one["against_sweet"]:
            one["against_sweet"] |= {"seeds_ci": None}
    bare["seeds"] = [3]
    for columns in (bare["best_of"], bare["best_of_turns"], bare["offline"]):
        for name in [name for name in columns if name.endswith("_ci")]:
            columns[name] = [None] * len(columns[name])
    results = study(**bare)
    assert list(plots.plots(results)) == PARTS
    assert study_series.verdict(results) == {
        "above": [],
        "below": [],
        "open": [name for name in METHODS if name != "sweet"],
    }
    read("".join(page(results, {})))


@pytest.mark.usefixtures("coarse")
def test_every_method_of_a_study_has_its_words() -> None:
    assert sorted(METHODS) == sorted(study_settings.METHODS)


@pytest.mark.usefixtures("coarse")
def test_the_plots_are_those_of_the_results_alone() -> None:
    import matplotlib

    before = plots.plots(study())
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        assert plots.plots(study()) == before
    other = study(best_of={"n": [1, 2], "critic": [0.1, 0.2]})
    assert {name for name, png in plots.plots(other).items() if png != before[name]} == {"best-of"}


def test_the_overview_carries_where_it_comes_from() -> None:
    image = picture(plots.overview(study(), "digest"))
    assert image.info["Source"] == "digest"
    assert 1500 < image.size[0] < 2000
    only = study(best_of=None, best_of_turns=None, credit=None)
    assert picture(plots.overview(only, "digest")).size[0] > 1500


def test_the_overview_has_the_best_of_n_replies_and_of_older_results_that_of_dialogues() -> None:
    assert plots.overview_parts(study()) == ["success", "best-of-turns", "credit"]
    older = StudyResults.model_validate(
        {name: value for name, value in study_dict().items() if name != "best_of_turns"}
    )
    assert plots.overview_parts(older) == ["success", "best-of", "credit"]
    assert plots.overview_parts(study(best_of=None, best_of_turns=None)) == ["success", "credit"]
    assert plots.overview(older, "digest") != plots.overview(study(), "digest")


@pytest.mark.usefixtures("coarse")
def test_the_folder_gets_the_page_and_the_plots(tmp_path: Path) -> None:
    written = write_report(tmp_path, study())
    assert written.page == tmp_path / "report.html"
    assert written.remark == ""
    assert [file.name for file in written.plots] == [f"{part}.png" for part in PARTS]
    text = written.page.read_text(encoding="utf-8")
    reader = read(text)
    assert sum(value.startswith("data:image/png;base64,") for name, value in reader.attributes if name == "src") == len(
        PARTS
    )
    assert all(value for name, value in reader.attributes if name == "alt")
    assert not {"script", "link", "a", "iframe"} & set(reader.tags)
    assert not {"href", "style"} & {name for name, _ in reader.attributes}
    assert "25.0 % " in text
    assert "not the results of the paper" in text
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        [*(f"{part}.png" for part in PARTS), "report.html"]
    )


def test_without_matplotlib_there_are_tables_and_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "available", lambda: False)
    written = write_report(tmp_path, study())
    assert written.plots == []
    assert ".[plots]" in written.remark
    text = written.page.read_text(encoding="utf-8")
    assert ".[plots]" in text
    assert "<img" not in text
    assert "multi-turn-dpo" in text
    with pytest.raises(UsageError, match=r"\.\[plots\]"):
        plots.plots(study())


@pytest.mark.usefixtures("coarse")
def test_learning_curves_are_drawn_over_tokens_with_a_mark_for_each_method() -> None:
    names = list(METHODS)[: len(plots.MARKS)]
    results = study(methods=[learned(number, name) for number, name in enumerate(names)])
    assert list(plots.plots(results)) == ["success", "best-of-turns", "best-of", "offline", "learning", "credit"]
    assert plots.overview_parts(results) == ["success", "learning", "credit"]
    assert len({mark for mark, _, _ in plots.MARKS}) == len(plots.MARKS)
    series = study_series.learning(results)
    assert sorted(one.name for one in series) == sorted(names)
    assert series[0].name == "sweet", "it comes first"
    assert [point.x for point in series[0].points][1] == 15_000 + names.index("sweet")
    text = "".join(page(results, {}))
    assert 'id="learning"' in text
    assert "15,000" in text
    assert "+7.0" in text
    assert 'id="learning"' not in "".join(page(study(), {})), "results of earlier versions have none"


def test_nothing_in_the_results_becomes_markup_or_mathematics(drawn: dict[str, bytes]) -> None:
    odd = [*study_dict()["methods"], method(3, f"$\\frac{{{HOSTILE}"), method(3, "_hidden"), method(3, "测试")]
    results = study(
        methods=odd,
        family=HOSTILE,
        settings={HOSTILE: HOSTILE},
        versions={HOSTILE: HOSTILE},
        best_of={"n": [1, 2], HOSTILE: [0.1, 0.2], "_x": [0.1, 0.3]},
        credit={"critic": {HOSTILE: {"mean": 0.1}}, "agreement": {HOSTILE: {"share": 0.5}}},
    )
    text = "".join(page(results, plots.plots(results)))
    assert set(read(text).tags) <= set(read("".join(page(study(), drawn))).tags)
    for unsafe in ("\x1b", "\u202e", "<script"):
        assert unsafe not in text
    assert printable_line(HOSTILE) in "".join(part for parts in read(text).text.values() for part in parts)


def test_the_verdict_wants_both_intervals() -> None:
    def against(ci: list[float] | None, seeds_ci: list[float] | None) -> dict[str, Any]:
        return {"difference": 0.1, "ci": ci, "p_value": 0.01, "seeds_ci": seeds_ci}

    cases = {
        "rft": against([0.01, 0.2], [0.02, 0.2]),
        "oracle": against([-0.2, -0.1], [-0.3, -0.01]),
        "no-info": against([0.01, 0.2], [-0.02, 0.2]),
        "random": against([0.01, 0.2], None),
        "upstream": against([0.0, 0.2], [0.01, 0.2]),
    }
    results = study(methods=[{**method(1, name), "against_sweet": case} for name, case in cases.items()])
    assert study_series.verdict(results) == {
        "above": ["rft"],
        "below": ["oracle"],
        "open": ["no-info", "upstream", "random"],
    }
    above, below, open_ = study_series.verdict_in_words(results)
    assert "above zero for sweet minus rft." in above
    assert "below zero for sweet minus oracle." in below
    assert "no-info, upstream, random." in open_


@pytest.mark.parametrize(
    ("change", "location"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"seeds": []}, "seeds"),
        ({"best_of": {"n": [1, 2], "critic": [0.5]}}, "critic is not as long as n"),
        ({"best_of": {"critic": [0.5]}}, "n must be numbers above 0"),
        ({"best_of_turns": {"critic": [0.5]}}, "n must be numbers above 0"),
        ({"best_of": {"n": [0], "critic": [0.5]}}, "n must be numbers above 0"),
        ({"offline": {"trajectories": [1], "rft": [[0.1, 0.2]]}}, "rft must be numbers"),
        ({"offline": {"trajectories": [1], "rft": [0.1], "rft_ci": [0.1]}}, "rft_ci must be intervals"),
        ({"methods": [{**method(0, "rft"), "success": float("nan")}]}, "success"),
    ],
)
def test_an_invalid_study_is_refused_with_its_location(change: dict[str, Any], location: str, tmp_path: Path) -> None:
    file = tmp_path / "study.json"
    file.write_text(json.dumps({**study_dict(), **change}), encoding="utf-8")
    with pytest.raises(InputError, match="The file is not the results of a study") as caught:
        read_results(file)
    assert location in str(caught.value)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "study.json"
    file.write_text(study().model_dump_json(), encoding="utf-8")
    assert read_results(file) == study()
    with pytest.raises(InputError, match="cannot be read"):
        read_results(tmp_path / "none.json")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
@settings(max_examples=5, deadline=None)
def test_any_shares_can_be_drawn(shares: list[float]) -> None:
    methods = [
        {**method(0, f"m{number}"), "success": share, "success_ci": around(share, 0.1)}
        for number, share in enumerate(shares)
    ]
    curve = {"n": [2.0**number for number in range(len(shares))], "critic": shares}
    pictures = plots.plots(study(methods=methods, best_of=curve, best_of_turns=None, offline=None, credit=None))
    assert all(picture(png).size for png in pictures.values())


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.sampled_from("abcdef"), unique=True))
def test_an_order_loses_nothing(names: list[str], order: list[str]) -> None:
    found = known_first(names, order)
    assert sorted(found) == sorted(names)
    assert [name for name in found if name in order] == [name for name in order if name in names]


def test_the_docs_explain_every_method_and_judge() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    section = text.split("## The study")[1].split("\n## ")[0]
    assert [name for name in METHODS if f"| `{name}` |" not in section] == []
    assert len(SEEDS) == 5
