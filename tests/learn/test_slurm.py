"""What Slurm says of its nodes, understood."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import SweetError, UsageError
from sweet.learn.slurm import Allocation, allocated_nodes, allocation, expand, for_srun, node_rank, on_each

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_NODELIST": "gpu[08-10]", "SLURM_GPUS_ON_NODE": "8"}


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs, the only one where any are looked for; srun is there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    put(tmp_path / "srun", "")
    return tmp_path


def put(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("node1", "node1"),
        ("node[01-03,7],gpu-a", "node01 node02 node03 node7 gpu-a"),
        ("gpu[08-10]", "gpu08 gpu09 gpu10"),
        ("n[9-11]", "n9 n10 n11"),
        (
            "rack[1-2]-n[1,3].hpc.example",
            "rack1-n1.hpc.example rack1-n3.hpc.example rack2-n1.hpc.example rack2-n3.hpc.example",
        ),
        ("[1-2]", "1 2"),
        ("a,b[1]", "a b1"),
    ],
)
def test_a_list_of_nodes_is_taken_apart(nodes: str, names: str) -> None:
    assert expand(nodes) == names.split()


@pytest.mark.parametrize(
    "nodes",
    [
        "",
        ",",
        "a,,b",
        "n[",
        "n]",
        "n[1-",
        "n[]",
        "n[1,]",
        "n[3-1]",
        "n[1-2-3]",
        "n[a-b]",
        "n[[1]]",
        "a b",
        "a;b",
        "n[1-99999999999]",
        "n[1-999][1-999]",
    ],
)
def test_what_is_no_list_of_nodes_is_refused(nodes: str) -> None:
    with pytest.raises(UsageError, match="not understood"):
        expand(nodes)


prefixes = st.from_regex(r"[a-z][a-z-]{0,5}", fullmatch=True)
ranges = st.tuples(st.integers(0, 120), st.integers(0, 9), st.integers(1, 4))


@given(
    st.lists(
        st.tuples(prefixes, st.lists(ranges, max_size=3), st.sampled_from(["", "-ib", ".x"])), min_size=1, max_size=4
    )
)
def test_any_list_of_nodes_stands_for_the_names_it_was_made_of(
    groups: list[tuple[str, list[tuple[int, int, int]], str]],
) -> None:
    words, names = [], []
    for prefix, spans, suffix in groups:
        inside = [f"{low:0{width}}" + (f"-{low + more:0{width}}" if more else "") for low, more, width in spans]
        words.append(prefix + (f"[{','.join(inside)}]" if inside else "") + suffix)
        numbers = [
            f"{n:0{max(width, len(str(low)))}}" for low, more, width in spans for n in range(low, low + more + 1)
        ]
        names += [prefix + number + suffix for number in (numbers if spans else [""])]
    assert expand(",".join(words)) == names


@given(st.text(alphabet="ab0129[]-,. ", max_size=20))
def test_no_text_does_worse_than_be_refused(text: str) -> None:
    try:
        names = expand(text)
    except UsageError:
        return
    assert all(name and not set(name) & set("[], ") for name in names)


def test_the_job_names_its_nodes_and_their_gpus(tools: Path) -> None:
    assert allocation(JOB) == Allocation(("gpu08", "gpu09", "gpu10"), 8)
    asked = JOB | {"SLURM_GPUS_ON_NODE": "", "SLURM_GPUS_PER_NODE": "a100:4,h100:2"}
    assert allocation(asked).gpus == 6
    assert allocation({"SLURM_JOB_NODELIST": "a"}) == Allocation(("a",), None)
    assert (allocated_nodes(JOB), allocated_nodes({})) == (3, 0)


def test_scontrol_is_asked_where_it_is_there(tools: Path) -> None:
    put(tools / "scontrol", 'test "$1 $2 $3" = "show hostnames gpu[08-10]" && echo x-1 && echo x-2')
    assert allocation(JOB).hosts == ("x-1", "x-2")
    put(tools / "scontrol", "echo not today >&2; exit 1")
    with pytest.raises(SweetError, match="not today"):
        allocation(JOB)


def test_what_is_missing_is_said(tools: Path) -> None:
    with pytest.raises(UsageError, match="no Slurm job"):
        allocation({})
    with pytest.raises(UsageError, match="started this command 16 times") as caught:
        allocation(JOB | {"SLURM_STEP_NUM_TASKS": "16"})
    assert caught.value.fix == "leave out srun before it"
    (tools / "srun").unlink()
    with pytest.raises(UsageError, match="srun is not found"):
        allocation(JOB)


def test_a_node_gets_one_task_and_all_that_the_job_has_there() -> None:
    words = on_each(2, 8, ["python", "x"])
    assert words[:4] == ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    assert words[-3:] == ["--gpus-per-node=8", "python", "x"]
    assert not any("gpus" in word for word in on_each(2, None, ["python"]))
    of_tasks = [
        "SLURM_CPUS_PER_TASK",
        "SRUN_CPUS_PER_TASK",
        "SLURM_GPUS_PER_TASK",
        "SLURM_NTASKS_PER_GPU",
        "SLURM_TRES_PER_TASK",
    ]
    of_tasks += ["SLURM_CPU_BIND", "SLURM_CPU_BIND_TYPE", "SLURM_GPU_BIND", "SLURM_MEM_PER_GPU", "SLURM_DISTRIBUTION"]
    kept = {"SLURM_JOB_ID": "7", "SLURM_GPUS_PER_NODE": "8", "HOME": "/h"}
    assert for_srun(dict.fromkeys(of_tasks, "1") | kept) == kept


def test_a_task_knows_its_node() -> None:
    assert node_rank({"SLURM_NODEID": "1"}) == 1
    with pytest.raises(UsageError, match="srun has not started this"):
        node_rank(dict(os.environ) | {"SLURM_NODEID": ""})
