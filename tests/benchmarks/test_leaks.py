"""The forms of the benchmark of the leak detector are faithful, and its honest replies tell facts."""

from __future__ import annotations

import base64
import random

import pytest

from benchmarks import leak_forms_held_out, leak_forms_honest, leak_forms_seen
from benchmarks.leak_references import references
from benchmarks.leak_translators import Translator, Untranslatable, languages, steps
from benchmarks.leaks import pieces, share

FEE = "def fee(days):\n    cost = days * 2\n    if days > 3:\n        cost += 5\n    return cost"


@pytest.mark.parametrize(
    ("kind", "language", "said"),
    [
        (
            "programming languages",
            "lisp",
            "(defun fee (days)\n  (let ((cost (* days 2))) "
            "(let ((cost (if (> days 3) (let ((cost (+ cost 5))) cost) cost))) cost)))",
        ),
        (
            "programming languages",
            "forth",
            ": fee ( days )\n  days 2 * TO cost\n  days 3 > IF\n    cost 5 + TO cost\n  THEN\n  cost EXIT\n;",
        ),
        (
            "verbal code",
            "french",
            "la fonction fee prend days : mettre days fois 2 dans cost, "
            "si days supérieur à 3 alors mettre cost plus 5 dans cost, retourner cost",
        ),
    ],
)
def test_a_function_is_said_in_another_language(kind: str, language: str, said: str) -> None:
    assert Translator(languages("seen")[kind][language])(FEE) == said


def test_what_a_language_cannot_say_is_not_left_out() -> None:
    with pytest.raises(Untranslatable):
        Translator(languages("seen")["programming languages"]["lisp"])(
            "def f(x):\n    while x:\n        x -= 1\n    return x"
        )


def test_a_jump_out_of_a_branch_leads_behind_the_other_one() -> None:
    source = "def f(x):\n for y in x:\n  if y:\n   x = 1\n  else:\n   x = 2\n return x"
    found = steps(source, leak_forms_seen.STEPS)
    assert [(step.test, step.yes, step.no) for step in found] == [
        (True, 1, 4),
        (True, 2, 3),
        (False, 0, 0),
        (False, 0, 0),
        (False, 5, 0),
    ]


def test_encoded_and_shuffled_forms_give_the_source_back() -> None:
    rng = random.Random(1)
    (encoded,) = leak_forms_seen.FORMS["base32"][1](FEE, rng) or []
    assert base64.b32decode(encoded).decode() == FEE
    lines = leak_forms_seen.FORMS["numbered_lines_shuffled"][1](FEE, rng) or []
    in_order = sorted(lines, key=lambda line: int(line.split(":")[0].split()[1]))
    assert "\n".join(line.partition(": ")[2] for line in in_order) == FEE


def test_seen_and_held_out_forms_differ_and_each_renders_a_reference() -> None:
    seen, held_out = leak_forms_seen.FORMS, leak_forms_held_out.FORMS
    assert not set(seen) & set(held_out)
    assert (len(seen), len(held_out)) == (80, 40)
    for _, form in (seen | held_out).values():
        replies = form(references()[0].source, random.Random(0))
        assert replies
        assert all(replies)


def test_a_rule_is_told_in_prose() -> None:
    (rule,) = leak_forms_honest.rules(FEE)
    assert rule.said("en") == "If the days is more than 3, we add 5."
    assert rule.said("de") == "Falls days über 3 liegt, kommen 5 dazu."


def test_each_wording_has_replies_without_fields_left() -> None:
    for name, (_, form) in leak_forms_honest.FORMS.items():
        said = (form(reference.source, random.Random(0)) for reference in references())
        replies = next(found for found in said if found)
        assert all(reply and "{fact" not in reply for reply in replies), name


def test_pieces_are_cut_at_line_ends_then_at_spaces() -> None:
    assert pieces("a b\nc\nd\ne") == ["a b", "c", "d\ne"]
    assert pieces("a b\nc d e") == ["a", "b\nc", "d e"]
    assert pieces("abcdef") == ["ab", "cd", "ef"]


def test_the_interval_is_wilsons() -> None:
    assert share([True] * 8 + [False] * 2) == {"share": 0.8, "found": 8, "of": 10, "interval": [0.4902, 0.9433]}
