"""The manifest as input from outside: round trips, damage, versions."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweet.errors import InputError, UsageError
from sweet.runs.manifest import (
    Artifact,
    ArtifactRef,
    Attempt,
    Manifest,
    json_schema,
    next_id,
    parse,
    render,
)
from sweet.runs.run import Run
from sweet.runs.stages import KINDS
from tests.interrupts import interrupts, lines
from tests.runs.conftest import Settings, make

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
TABLE = st.dictionaries(TEXT, JSON, max_size=3)
TIME = st.datetimes(timezones=st.just(UTC))
SUM = st.text("0123456789abcdef", min_size=64, max_size=64)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    stages = draw(st.lists(st.sampled_from(["rollout", "data-import", "train-critic"]), min_size=1, max_size=4))
    attempts = [
        Attempt(
            id=f"{stage}-{number}",
            stage=stage,
            status=draw(st.sampled_from(["running", "done", "failed", "interrupted"])),
            started=draw(TIME),
            finished=draw(st.none() | TIME),
            pid=draw(st.integers(1, 2**31 - 1)),
            host=draw(TEXT),
            config=draw(TABLE),
            digest=draw(TEXT),
            metrics=draw(TABLE),
            environment=draw(TABLE),
            error=draw(st.none() | TEXT),
            log=f"logs/{stage}-{number}.log",
        )
        for number, stage in enumerate(stages, 1)
    ]
    artifacts: list[Artifact] = []
    for number, kind in enumerate(draw(st.lists(st.sampled_from(KINDS), max_size=4)), 1):
        done = draw(st.booleans())
        artifacts.append(
            Artifact(
                id=f"{kind}-{number}",
                kind=kind,
                path=f"{kind}/{number}.jsonl",
                rows=draw(st.none() | st.integers(0, 10)),
                sha256=draw(SUM) if done else None,
                finished=draw(TIME) if done else None,
                status="done" if done else "partial",
                attempt=attempts[0].id,
                inputs=[ArtifactRef(id=one.id, sha256=one.sha256) for one in artifacts[:2]],
                created=draw(TIME),
                meta=draw(TABLE),
            )
        )
    return Manifest(sweet_version="1", task="code", created=draw(TIME), attempts=attempts, artifacts=artifacts)


@given(manifests())
@settings(max_examples=20)
def test_a_manifest_is_read_back_as_it_was(manifest: Manifest) -> None:
    assert parse(render(manifest), Path("manifest.json"), "") == manifest


def test_an_interrupt_while_a_manifest_is_written_is_raised_as_such(run: Run) -> None:
    """In a function that a serializer of pydantic calls it became a warning, and the program went on."""
    with run.attempt("rollout", Settings()) as attempt:
        attempt.environment["nodes"] = [{"gpus": 1, "name": "a"}, None]
    manifest = run.manifest()

    def write() -> bytes:
        return render(Manifest.model_validate(manifest.model_dump()))

    assert interrupts(write) == lines(write) > 20


@given(manifests(), st.data())
def test_any_damage_is_an_error_that_says_where(manifest: Manifest, data: st.DataObject) -> None:
    whole = render(manifest)
    start = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:start] + data.draw(st.binary(max_size=3)) + whole[start + data.draw(st.integers(0, 5)) :]
    told: UsageError | None = None
    try:
        parse(damaged, Path("run/manifest.json"), "cp a b")
    except UsageError as error:
        told = error
    if isinstance(told, InputError):
        assert "run/manifest.json" in (told.where or "")
        assert told.fix == "cp a b"
    elif told is not None:
        assert "has the schema" in told.what


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: m["artifacts"][0].update(path="../../etc/passwd"), r"artifacts\.0\.path: .*inside"),
        (lambda m: m["artifacts"][0].update(path="/etc/passwd"), r"artifacts\.0\.path: .*inside"),
        (lambda m: m["artifacts"][0].update(path="a/../../b"), "inside"),
        (lambda m: m["artifacts"][0].update(path="C:\\x"), "inside"),
        (lambda m: m["artifacts"][0].update(path="C:x"), "inside"),
        (lambda m: m["artifacts"][0].update(path="."), "inside"),
        (lambda m: m["artifacts"][0].update(path="a\nb"), "inside"),
        (lambda m: m["artifacts"][0].update(path="./a"), "inside"),
        (lambda m: m["attempts"][0].update(log="../x"), r"attempts\.0\.log"),
        (lambda m: m["artifacts"][0].update(id="../x-1"), "an id is a name"),
        (lambda m: m["artifacts"][0].update(id="scores-1"), "not one of the kind rollouts"),
        (lambda m: m["artifacts"][0].update(kind="fruits"), r"artifacts\.0\.kind"),
        (lambda m: m["artifacts"][0].update(sha256="abc"), "sha256"),
        (lambda m: m["artifacts"][0].update(sha256=None), "done has a sha256"),
        (lambda m: m["artifacts"][0].update(attempt="rollout-9"), "rollout-9, which is not among"),
        (lambda m: m["artifacts"][0].update(rows=-1), r"artifacts\.0\.rows"),
        (lambda m: m["artifacts"][0].update(inputs=[{"id": "rollouts-1"}]), "its own input"),
        (lambda m: m["artifacts"][0].update(color="red"), r"artifacts\.0\.color"),
        (lambda m: m["artifacts"].append(m["artifacts"][0]), "rollouts-1 occurs twice"),
        (lambda m: m["attempts"].append(m["attempts"][0]), "rollout-1 occurs twice"),
        (lambda m: m["attempts"][0].update(stage="eval"), "not one of the stage eval"),
        (lambda m: m["attempts"][0].update(started="yesterday"), r"attempts\.0\.started"),
        (lambda m: m.pop("task"), "task"),
        (lambda m: m.update(schema_version="1"), "schema_version"),
    ],
)
def test_what_a_hand_made_wrong_is_named(run: Run, change: Change, told: str) -> None:
    make(run, "rollout", "rollouts")
    path = run.path / "manifest.json"
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    before = path.read_bytes()
    with pytest.raises(InputError, match=told):
        run.manifest()
    with pytest.raises(InputError, match=told):
        make(run, "rollout", "rollouts")
    assert path.read_bytes() == before, "nothing is written over what a hand did"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"schema_version": 1}'])
def test_the_fix_of_a_damaged_manifest_works_as_it_is_printed(run: Run, content: bytes) -> None:
    artifact = make(run, "rollout", "rollouts")
    whole = run.manifest()
    (run.path / "manifest.json").write_bytes(content)
    for use in (lambda: Run.open(run.path), lambda: Run.open_or_create(run.path, "code"), run.manifest):
        with pytest.raises(InputError, match=r"damaged|UTF-8") as error:
            use()
    subprocess.run(shlex.split(error.value.fix or ""), check=True)
    assert run.manifest() == whole
    assert run.find("rollouts", needed_by="eval") == artifact


def test_a_lost_manifest_is_restored_and_not_begun_anew(run: Run) -> None:
    make(run, "rollout", "rollouts")
    (run.path / "manifest.json").unlink()
    uses: list[Callable[[], object]] = [lambda: Run.open(run.path), lambda: Run.open_or_create(run.path, "code")]
    for use in uses:
        with pytest.raises(InputError, match="lost its manifest") as error:
            use()
    subprocess.run(shlex.split(error.value.fix or ""), check=True)
    assert len(run.manifest().artifacts) == 1


def test_both_copies_damaged_says_that_the_artifacts_are_safe(run: Run) -> None:
    for name in ("manifest.json", "manifest.json.bak"):
        (run.path / name).write_text("{")
    with pytest.raises(InputError) as error:
        run.manifest()
    assert "are unchanged" in (error.value.fix or "")


@pytest.mark.parametrize("version", [0, 2])
def test_another_schema_is_refused_and_left_alone(run: Run, version: int) -> None:
    path = run.path / "manifest.json"
    path.write_text(json.dumps({"schema_version": version, "whatever": []}))
    before = path.read_bytes()
    told = f"The manifest has the schema {version}, and this version of sweet reads 1"
    with pytest.raises(UsageError, match=told) as error:
        Run.open(run.path)
    assert (error.value.exit_code, error.value.fix) == (2, "open it with the version that wrote it")
    with pytest.raises(UsageError, match=told), run.attempt("rollout", Settings()):
        pass
    assert path.read_bytes() == before


def test_the_schema_describes_what_is_written(run: Run) -> None:
    make(run, "rollout", "rollouts")
    schema = json_schema()
    value = json.loads((run.path / "manifest.json").read_text())
    assert set(value) == set(schema["properties"])
    assert set(value["artifacts"][0]) == set(schema["$defs"]["Artifact"]["properties"])
    assert json.dumps(schema)


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([], "eval-1"),
        (["eval-1", "eval-7", "rollout-9"], "eval-8"),
        (["eval-x", "eval", "data-eval-4"], "eval-1"),
        (["eval-1", "eval-999999999"], "eval-2"),
        (["eval-9999999999"], "eval-1"),
    ],
)
def test_numbers_go_up(taken: list[str], expected: str) -> None:
    assert next_id("eval", taken) == expected
