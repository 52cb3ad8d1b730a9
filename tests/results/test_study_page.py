"""The page of a study, its charts and README's picture: with all or some parts, escaped, equal to the results."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docs.tools.study_picture import overview, overview_parts
from sweet.errors import InputError
from sweet.results import study_facts
from sweet.results.study_facts import about, known_first, tables
from sweet.results.study_page import drawings, study_page, write_study
from sweet.study.results import StudyResults, Try, read_results
from sweet.study.settings import METHODS
from sweet.view.text import printable_line
from tests.docs.pages import ROOT
from tests.results.study_results import SEEDS, around, curve, learned, method, study, study_dict
from tests.results.test_dialogues_page import read
from tests.view.conftest import HOSTILE

PARTS = ["success", "best-of-turns", "best-of", "credit"]


def drawn(results: StudyResults) -> str:
    return "".join(study_page(results))


def marks(results: StudyResults, part: str) -> list[str]:
    """Return what the marks of a chart say."""
    return re.findall(r"<title>([^<]*)</title>", drawings(results)[part].content)


def test_every_part_is_drawn_with_its_values() -> None:
    results = study()
    assert sorted(drawings(results)) == sorted(PARTS)
    assert "sweet, temperature 1, 95 % over seeds: 25.0 % [21.0, 29.0]" in marks(results, "success")
    assert "sweet, greedy: 35.0 %" in marks(results, "success")
    assert "useful question, critic: 12.0 % [9.0, 15.0]" in marks(results, "credit")
    assert "critic at 4: 40.0 % [37.0, 43.0]" in marks(results, "best-of")
    for name in METHODS:
        assert f">{name}</text>" in drawings(results)["success"].content


def test_the_page_says_what_was_played_and_by_whom() -> None:
    assert "a million parameters" in about("micro")
    assert "a million parameters" in drawn(study())
    result = drawn(study(family="micro-long", model="SmolLM2 <i>"))
    assert "long dialogues and SmolLM2 &lt;i&gt;" in result
    assert "a million parameters" not in result


def test_what_is_not_there_is_not_drawn() -> None:
    only = study(methods=[method(0, "sweet")], best_of=None, best_of_turns=None, credit=None)
    assert list(drawings(only)) == ["success"]
    text = drawn(only)
    assert 'id="success"' in text
    assert not [part for part in PARTS[1:] if f'id="{part}"' in text]
    assert drawings(study(methods=[])).keys() == {*PARTS[1:]}


def test_intervals_that_are_not_known_are_no_obstacle() -> None:
    bare = study_dict()
    for one in bare["methods"]:
        for name in ("success", "tests_passed", "greedy_success"):
            one[name]["ci"] = None
        if one["against_sweet"]:
            one["against_sweet"] |= {"seeds_ci": None}
    bare["seeds"] = [3]
    for point in (point for name in ("best_of", "best_of_turns") for row in bare[name].values() for point in row):
        point["success"]["ci"] = None
    results = study(**bare)
    assert sorted(drawings(results)) == sorted(PARTS)
    assert study_facts.verdict(results) == {
        "above": [],
        "below": [],
        "open": [name for name in METHODS if name != "sweet"],
    }
    read(drawn(results))


def test_the_overview_is_a_picture_that_names_its_source_and_loads_nothing() -> None:
    text = overview(study(), "digest")
    root = ET.fromstring(text)
    assert root.findtext("{http://www.w3.org/2000/svg}metadata") == "digest"
    assert 800 < float(root.attrib["width"]) < 1000
    assert not re.search(r"href|url\(|@import|<script", text)
    alone = study(best_of=None, best_of_turns=None, credit=None)
    assert float(ET.fromstring(overview(alone, "digest")).attrib["width"]) < 600


def test_the_overview_has_the_first_that_there_is_of_the_curves() -> None:
    assert overview_parts(study()) == ["success", "best-of-turns", "credit"]
    assert overview_parts(study(best_of_turns=None)) == ["success", "best-of", "credit"]
    assert overview_parts(study(best_of=None, best_of_turns=None)) == ["success", "credit"]


def test_the_folder_gets_the_page(tmp_path: Path) -> None:
    assert write_study(tmp_path, study()) == tmp_path / "report.html"
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    reader = read(text)
    assert reader.tags.count("figure") == len(PARTS)
    assert not {"script", "link", "a", "iframe", "img"} & set(reader.tags)
    assert not {"href", "style"} & {name for name, _ in reader.attributes}
    assert "25.0 % " in text
    assert "not the results of the paper" in text
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_learning_curves_are_drawn_over_tokens_each_in_its_own_way() -> None:
    names = list(METHODS)[:11]
    results = study(methods=[learned(number, name) for number, name in enumerate(names)])
    assert sorted(drawings(results)) == sorted([*PARTS, "learning"])
    assert overview_parts(results) == ["success", "learning", "credit"]
    content = drawings(results)["learning"].content
    assert len(set(re.findall(r'<polyline class="([^"]*)"', content))) == len(names)
    series = study_facts.learning(results)
    assert sorted(one.name for one in series) == sorted(names)
    assert series[0].name == "sweet", "it comes first"
    assert [point.x for point in series[0].points][1] == 15_000 + names.index("sweet")
    text = drawn(results)
    assert 'id="learning"' in text
    assert "15,000" in text
    assert "+7.0" in text
    assert 'id="learning"' not in drawn(study())


def test_nothing_in_the_results_becomes_markup() -> None:
    odd = [*study_dict()["methods"], method(3, f"$\\frac{{{HOSTILE}"), method(3, "_hidden"), method(3, "测试")]
    results = study(
        methods=odd,
        family=HOSTILE,
        settings={HOSTILE: HOSTILE},
        versions={HOSTILE: HOSTILE},
        best_of={HOSTILE: curve(0.1, 0.1, 2), "_x": curve(0.1, 0.1, 1)},
        credit={"critic": {HOSTILE: {"mean": 0.1}}, "agreement": {HOSTILE: {"mean": 0.5}}},
    )
    text = drawn(results)
    assert set(read(text).tags) <= set(read(drawn(study())).tags)
    for unsafe in ("\x1b", "\u202e", "<script"):
        assert unsafe not in text
        assert unsafe not in overview(results, HOSTILE)
    assert printable_line(HOSTILE) in "".join(part for parts in read(text).text.values() for part in parts)
    ET.fromstring(overview(results, HOSTILE))


def test_the_tables_have_the_values_of_the_results() -> None:
    found = tables(study(methods=[learned(1, "rft"), learned(3, "sweet")]))
    (methods, seeds), (points, ends) = found["success"], found["learning"]
    assert methods.rows[0] == (
        *("rft", "15.0 % [11.0, 19.0]", "35.0 % [32.0, 38.0]", "25.0 % [20.0, 30.0]"),
        *("+10.0 pp [+7.0, +13.0]", "[+4.0, +16.0]", "0.001", "125,001", "1.0 min", ""),
    )
    assert seeds.rows[0] == ("rft", "13.0 %", "14.0 %", "15.0 %", "16.0 %", "17.0 %")
    assert points.rows[1] == ("rft", "15,001", "15 s", "11.5 % [8.5, 14.5]")
    assert ends.rows[0] == ("rft", "16.0 % [14.0, 18.0]", "+7.0 pp [+3.0, +11.0]", "60,001")
    assert found["best-of-turns"][0].rows[1][:2] == ("2", "28.0 % [25.0, 31.0]")
    kinds, couples = found["credit"]
    assert kinds.rows[0] == ("useful question", "+0.120 [+0.090, +0.150]", "+0.030 [+0.010, +0.050]")
    assert couples.rows == [
        ("all", "80.0 % [77.0, 83.0]", "60.0 % [56.0, 64.0]"),
        ("useful question over useless question", "90.0 %", "70.0 %"),
    ]


def test_the_settings_that_were_tried_are_told_by_what_differs() -> None:
    first: dict[str, Any] = {"learns": "sweet", "pair": {"pairs": 4}, "actor": {"lr": 0.1, "batch": 8}}
    changes: list[dict[str, Any]] = [
        {},
        {"actor": {"lr": 0.1, "batch": 2}},
        {"pair": {"pairs": 8}},
        {"sizes": {"candidates": 4}},
    ]
    tried = [Try(settings=first | more, success=0.25 * place) for place, more in enumerate(changes)]
    section = study_facts._tries(study().model_copy(update={"tries": {"sweet": tried}}))
    assert [tuple(row[1:]) for row in section.rows] == [
        ("0.0 %", "as given"),
        ("25.0 %", "actor batch 2"),
        ("50.0 %", "pair pairs 8"),
        ("75.0 %", "sizes candidates 4"),
    ]


def test_the_verdict_wants_both_intervals() -> None:
    def against(ci: list[float] | None, seeds_ci: list[float] | None) -> dict[str, Any]:
        return {"difference": {"mean": 0.1, "ci": ci}, "p_value": 0.01, "seeds_ci": seeds_ci}

    cases = {
        "rft": against([0.01, 0.2], [0.02, 0.2]),
        "oracle": against([-0.2, -0.1], [-0.3, -0.01]),
        "no-info": against([0.01, 0.2], [-0.02, 0.2]),
        "random": against([0.01, 0.2], None),
        "upstream": against([0.0, 0.2], [0.01, 0.2]),
    }
    results = study(methods=[{**method(1, name), "against_sweet": case} for name, case in cases.items()])
    assert study_facts.verdict(results) == {
        "above": ["rft"],
        "below": ["oracle"],
        "open": ["no-info", "upstream", "random"],
    }
    (sentence,) = study_facts.verdict_in_words(results)
    assert "sweet is above rft; is below oracle; is not clearly different from no-info, upstream, random." in sentence


@pytest.mark.parametrize(
    ("change", "location"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"seeds": []}, "seeds"),
        ({"best_of": {"critic": [0.5]}}, "best_of.critic.0"),
        ({"best_of": {"critic": [{"n": 0, "success": {"mean": 0.5}}]}}, "best_of.critic.0.n"),
        ({"best_of_turns": {"critic": [{"n": 1, "success": [0.1, 0.2]}]}}, "best_of_turns.critic.0.success"),
        ({"best_of": {"critic": [{"n": 1, "success": {"mean": 0.1, "ci": [0.1]}}]}}, "best_of.critic.0.success.ci"),
        ({"methods": [{**method(0, "rft"), "success": {"mean": float("nan")}}]}, "success"),
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
    methods = [{**method(0, f"m{number}"), "success": around(share, 0.1)} for number, share in enumerate(shares)]
    best = {"critic": [{"n": 2**number, "success": {"mean": share}} for number, share in enumerate(shares)]}
    results = study(methods=methods, best_of=best, best_of_turns=None, credit=None)
    assert not re.search(r'="[^"]*(nan|inf)', "".join(one.content for one in drawings(results).values()))


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.sampled_from("abcdef"), unique=True))
def test_an_order_loses_nothing(names: list[str], order: list[str]) -> None:
    found = known_first(names, order)
    assert sorted(found) == sorted(names)
    assert [name for name in found if name in order] == [name for name in order if name in names]


def test_the_docs_explain_every_method_and_judge() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    section = text.split("## The study")[1].split("\n## ")[0]
    assert [name for name in METHODS if f"`{name}`" not in section] == []
    assert len(SEEDS) == 5
