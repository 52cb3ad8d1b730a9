"""The container files agree with pyproject.toml, with what CI installs, and with docs/containers.md."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

FILES = sorted((ROOT / "containers").glob("*.Dockerfile"))
DEBIAN_PYTHON = {"bookworm": (3, 11), "trixie": (3, 13)}


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def steps(request: pytest.FixtureRequest) -> list[tuple[str, str]]:
    """The instructions of a file with their arguments, continued lines joined."""
    path: Path = request.param
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in joined.splitlines() if line.strip()]


def _project() -> dict[str, object]:
    project: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def _apt_packages(text: str) -> set[str]:
    found = re.findall(r"apt-get install ([^&;}>]*)", text.replace("\\\n", " "))
    return {word for words in found for word in words.split() if not word.startswith("-")}


def test_there_are_two() -> None:
    assert [path.name for path in FILES] == ["cpu.Dockerfile", "cuda.Dockerfile"]


def test_the_python_of_the_base_is_one_that_the_project_supports(steps: list[tuple[str, str]]) -> None:
    (base,) = [text.partition("=")[2] for kind, text in steps if kind == "ARG" and text.startswith("BASE=")]
    release = re.fullmatch(r"docker\.io/library/debian:(\w+)-slim", base)
    assert release is not None
    major, minor = DEBIAN_PYTHON[release[1]]
    project = _project()
    assert project["requires-python"] == ">=3.11"
    assert f"Programming Language :: Python :: {major}.{minor}" in project["classifiers"]  # type: ignore[operator]


def test_it_installs_what_ci_installs(steps: list[tuple[str, str]]) -> None:
    required = _apt_packages((ROOT / ".ci" / "run").read_text("utf-8"))
    assert required == {"bubblewrap", "libseccomp2", "firefox-esr"}
    assert required <= _apt_packages("\n".join(text for kind, text in steps if kind == "RUN"))


def test_its_extras_exist_and_one_for_gpus_is_in_the_image_for_gpus(steps: list[tuple[str, str]]) -> None:
    text = "\n".join(text for kind, text in steps if kind == "RUN")
    (extras,) = re.findall(r"pip install [^&]*'/source\[([\w,]+)\]'", text)
    named = extras.split(",")
    assert set(named) <= _project()["optional-dependencies"].keys()  # type: ignore[attr-defined]
    assert named == sorted(named)
    assert ("gpu" in named) == any("NVIDIA" in text for _, text in steps)
    assert {"html", "play"} <= set(named)


def test_what_it_copies_exists_and_is_all_that_the_build_reads(steps: list[tuple[str, str]]) -> None:
    copied = [word for kind, text in steps if kind == "COPY" for word in shlex.split(text)[:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    project = _project()
    assert {str(project["readme"]), *project["license-files"], "pyproject.toml", "sweet"} == set(copied)  # type: ignore[misc]


def test_it_runs_as_an_ordinary_user_and_stores_in_the_volume(steps: list[tuple[str, str]]) -> None:
    last = dict(steps)
    assert last["USER"] not in ("root", "0")
    assert (last["WORKDIR"], last["VOLUME"]) == ("/work", "/work")
    assert (last["ENTRYPOINT"], last["CMD"]) == ('["sweet"]', '["doctor"]')
    kinds = [kind for kind, _ in steps]
    assert "RUN" not in kinds[kinds.index("USER") :], "nothing is installed as that user"
    folders = dict(re.findall(r"(HF_HOME|SWEET_DATA)=(\S+)", "\n".join(text for kind, text in steps if kind == "ENV")))
    assert set(folders) == {"HF_HOME", "SWEET_DATA"}
    assert all(folder.startswith("/work/") for folder in folders.values())
