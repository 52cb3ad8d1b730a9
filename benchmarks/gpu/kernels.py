"""Compile the kernels of prefix trees for an H100, and compute trees with them, without a GPU.

    python -m benchmarks.gpu.kernels [--types float32,bfloat16] [--sizes 64,128]

It needs a torch that was built for CUDA, and Triton, but neither a GPU nor a driver. FlexAttention's graphs of forward
and backward pass are recorded on the CPU (`record`). torch's compiler gets them with tensors that say that they are on
an H100 (`Hopper`), writes its kernels, and Triton compiles these to machine code. Triton's interpreter then runs those
of fp32 and size 64 over trees on the CPU; results and gradients are compared with those of a mask of slots times slots
(`interpret`). Prints one JSON object, after a few minutes. Registers and speed it cannot show.

Private parts of torch and Triton are replaced: it was written for torch 2.11 and Triton 3.6.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.gpu.checkout import ROOT
from sweet.learn import flex
from sweet.learn.flex import TILE, FlexTree
from sweet.learn.tree import build_tree

HEADS, KEY_HEADS = 8, 2
H100 = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=80 << 30,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    L2_cache_size=50 << 20,
    clock_rate=1980000,
    memory_clock_rate=2619000,
    memory_bus_width=5120,
)
"""Its properties, as torch reads them from a driver."""

TREES: dict[str, list[list[int]]] = {
    "replies": [[1] * 300 + [2 + reply] * 90 for reply in range(3)],
    "turns": [[1] * (100 * turn) + [2 + turn] * 150 for turn in range(1, 3)],
    "short": [[1, 2, 3], [1, 4]],
}
"""The sequences of the trees that are computed: replies to one prompt, turns of a dialogue, and less than a tile."""


# Recording -------------------------------------------------------------------------------------------------------


def record(dtype: torch.dtype, size: int) -> list[tuple[str, Any]]:
    """Return the graphs of torch's compiler with their names: without gradients, forward, backward."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.utils import make_boxed_func
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table
    from torch.nn.attention import flex_attention

    found: list[tuple[str, Any]] = []

    def keep(name: str) -> Callable[..., Any]:
        def compiler(graph: Any, _inputs: Any) -> Any:
            found.append((name, copy.deepcopy(graph)))
            return make_boxed_func(graph.forward)

        return compiler

    passes = {"fw_compiler": "forward", "bw_compiler": "backward", "inference_compiler": "without gradients"}
    backend: Any = aot_autograd(
        **{argument: keep(name) for argument, name in passes.items()},
        decompositions=select_decomp_table,
        partition_fn=min_cut_rematerialization_partition,
    )
    usual: Any = flex_attention._apply_kernel_options

    def for_gpu(*arguments: Any) -> Any:
        return usual(*arguments) | {"OUTPUT_LOGSUMEXP": torch.is_grad_enabled()}  # which a CPU does not store

    torch.compiler.reset()
    kernel = flex.compiled(backend)
    with ExitStack() as stack:
        stack.enter_context(patch.object(flex, "_kernel", lambda _device: kernel))
        stack.enter_context(patch.object(flex_attention, "_apply_kernel_options", for_gpu))
        stack.enter_context(patch.object(flex_attention, "_validate_device", lambda *_heads: None))  # refuses gradients
        for grad in (False, True):
            for rows in TREES.values():
                tree = build_tree(rows)
                query, key, value = _heads(len(tree.ids), size, dtype, grad)
                with torch.set_grad_enabled(grad):
                    output = FlexTree(tree).attend(query, key, value, scaling=size**-0.5)
                if grad:
                    torch.autograd.backward([output.float().sum()])
    return found


def _heads(slots: int, size: int, dtype: torch.dtype, grad: bool) -> list[Tensor]:
    draw = torch.Generator().manual_seed(slots)
    return [
        torch.randn(1, count, slots, size, dtype=dtype, generator=draw, requires_grad=grad)
        for count in (HEADS, KEY_HEADS, KEY_HEADS)
    ]


# Compiling -------------------------------------------------------------------------------------------------------


class Hopper:
    """Lets torch and Triton find an H100 while it is open, and keeps what they compile for it.

    Attributes:
        sources: the modules that torch has written.
        kernels: the kernels that Triton has compiled, with the bytes of shared memory that each needs.
    """

    def __init__(self) -> None:
        self.sources: list[str] = []
        self.kernels: list[dict[str, Any]] = []

    @contextmanager
    def open(self) -> Iterator[None]:
        import triton
        from torch._inductor.graph import GraphLowering
        from torch._inductor.runtime import triton_helpers, triton_heuristics
        from triton.backends.compiler import GPUTarget

        target = GPUTarget("cuda", 10 * H100.major + H100.minor, H100.warp_size)
        driver = SimpleNamespace(
            get_current_target=lambda: target,
            get_current_device=lambda: 0,
            get_active_torch_device=lambda: torch.device("cuda", 0),
            is_active=lambda: True,
        )
        triton.runtime.driver.set_active(driver)

        def keep(tuner: Any) -> None:
            for result in tuner.compile_results:
                kernel = result.kernel
                shared = kernel.shared if hasattr(kernel, "shared") else kernel.metadata.shared
                self.kernels.append({"name": tuner.fn.__name__, "shared_bytes": shared})
            tuner.launchers = [None]

        answers: dict[str, Any] = {
            "is_available": True,
            "device_count": 1,
            "current_device": 0,
            "get_device_properties": H100,
            "_get_device_properties": H100,
            "get_device_capability": (H100.major, H100.minor),
            "_lazy_init": None,
            "_exchange_device": 0,
            "_maybe_exchange_device": 0,
            "get_rng_state": torch.get_rng_state(),
            "set_rng_state": None,
        }
        with ExitStack() as stack:
            for name, value in answers.items():
                answer = lambda *_args, value=value, **_kwargs: value  # noqa: E731
                stack.enter_context(patch.object(torch.cuda, name, answer, create=True))
            stack.enter_context(patch("torch._subclasses.fake_tensor.init_gpu_context", lambda *_args: None))
            stack.enter_context(
                patch("torch._inductor.fx_passes.fuse_attention._sfdp_init", lambda *_args, **_more: None)
            )
            stack.enter_context(patch.object(triton_helpers, "set_driver_to_gpu", lambda: None))
            stack.enter_context(patch.object(triton_heuristics.CachingAutotuner, "_make_launchers", keep))
            stack.enter_context(patch.object(GraphLowering, "save_output_code", self.sources.append))
            for module in [each for name, each in sys.modules.items() if name.startswith("torch")]:
                if "has_triton" in vars(module):
                    stack.enter_context(patch.object(module, "has_triton", lambda *_args: True))
            yield

    def compile(self, name: str, graph: Any) -> None:
        """Compile a recorded graph."""
        from torch._guards import TracingContext, tracing
        from torch._inductor import compile_fx
        from torch._subclasses.fake_tensor import FakeTensor

        for module in [each for each in graph.modules() if hasattr(each, "graph")]:
            for node in module.graph.nodes:
                if "device" in node.kwargs:
                    node.kwargs = node.kwargs | {"device": torch.device("cuda", 0)}
                for key in {"val", "example_value"} & node.meta.keys():
                    node.meta[key] = torch.utils._pytree.tree_map_only(FakeTensor, _on_gpu, node.meta[key])
            module.recompile()
        inputs = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
        mode = next(one.fake_mode for one in inputs if isinstance(one, FakeTensor))
        kind: dict[str, Any] = {"is_backward": name == "backward", "is_inference": name == "without gradients"}
        with torch.no_grad(), tracing(TracingContext(mode)), mode:
            compile_fx.compile_fx_inner(graph, inputs, **kind)


def _on_gpu(tensor: Any) -> Tensor:
    with tensor.fake_mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")


# Interpreting ----------------------------------------------------------------------------------------------------


def interpret(sources: Sequence[Path]) -> dict[str, dict[str, float]]:
    """Return the greatest differences of each tree's results and gradients. Triton interprets kernels in this process:
    TRITON_INTERPRET was set when it was imported."""
    from triton.runtime import interpreter

    library: Any = interpreter
    usual = library._patch_lang_tensor

    def with_index(tensor: Any, *scope: Any) -> None:
        usual(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())  # numpy 2.4 converts no array of one number

    library._patch_lang_tensor = with_index
    modules = {}
    for path in sources:
        for name, text, grid in kernels_of(path.read_text()):
            place = path.with_name(f"{path.stem}_{name}.py")
            place.write_text(text)
            sys.path.insert(0, str(place.parent))
            modules["backward" if "backward" in name else "forward"] = getattr(__import__(place.stem), name), grid
    return {name: _differences(rows, modules) for name, rows in TREES.items()}


def kernels_of(source: str) -> Iterator[tuple[str, str, str]]:
    """Yield the kernels of attention that a module has: name, source without what would tune it, and grid."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "async_compile.triton":
            name, text = (ast.literal_eval(part) for part in call.args[:2])
            if name.startswith("triton_tem"):
                grids = re.findall(rf"{name}\.run\((.*), stream=", source)
                yield name, re.sub(r"@triton_heuristics\.template\(.*?\n\)\n", "", text, flags=re.S), grids[-1]


def _differences(rows: Sequence[Sequence[int]], modules: dict[str, tuple[Any, str]]) -> dict[str, float]:
    tree = build_tree(rows)
    mask = FlexTree(tree).mask(torch.device("cpu"))
    tiles = mask.kv_num_blocks.shape[-1]
    query, key, value = _heads(tiles * TILE, 64, torch.float32, True)
    ends, slots = torch.tensor([*tree.ends, *range(len(tree.ids) + 1, tiles * TILE + 1)]), torch.arange(tiles * TILE)
    keys, values = (heads.repeat_interleave(HEADS // KEY_HEADS, 1) for heads in (key, value))
    visible = (slots[None] <= slots[:, None]) & (slots[:, None] < ends[None])
    scores = (query @ keys.transpose(2, 3) / 8).masked_fill(~visible, -torch.inf)
    expected = scores.softmax(3) @ values
    arriving = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0))
    torch.autograd.backward([expected], [arriving])
    sums = (scores.logsumexp(3) / math.log(2)).detach().contiguous()  # the kernels compute powers of 2
    found = {
        name: torch.full(shape, torch.nan)
        for name, shape in (
            ("output", query.shape),
            ("sums", sums.shape),
            ("query", query.shape),
            ("key", key.shape),
            ("value", key.shape),
        )
    }
    given = {
        **{"arg_Q": query.detach(), "arg_K": key.detach(), "arg_V": value.detach()},
        **{"arg_KV_NUM_BLKS": mask.kv_num_blocks, "arg_KV_IDX": mask.kv_indices},
        **{"arg_Q_NUM_BLKS": mask.q_num_blocks, "arg_Q_IDX": mask.q_indices},
        **{"arg_FULL_KV_NUM_BLKS": mask.full_kv_num_blocks, "arg_FULL_KV_IDX": mask.full_kv_indices},
        **{"arg_FULL_Q_NUM_BLKS": mask.full_q_num_blocks, "arg_FULL_Q_IDX": mask.full_q_indices},
        **{"arg_DO": arriving, "arg_DELTA": (expected * arriving).sum(3).detach().contiguous()},
        **{"arg_MAX": torch.empty(sums.shape), "arg_DQ": found["query"], "arg_DV": found["value"]},
    }
    for name, (kernel, run) in modules.items():
        outputs = {
            "forward": {"arg_LSE": found["sums"], "out_ptr0": found["output"]},
            "backward": {"arg_LSE": sums, "out_ptr0": found["key"]},
        }[name]
        arguments = [
            (given | outputs).get(each, ends if each.startswith("in_ptr") else tiles) for each in kernel.arg_names
        ]
        grid = [eval(re.sub(r"s\d+", str(tiles), size)) for size in run.split(", ")[-3:]]  # noqa: S307
        kernel[tuple(grid)](*arguments)
    right: dict[str, Any] = {"output": expected, "sums": sums}
    right |= {"query": query.grad, "key": key.grad, "value": value.grad}
    return {name: float((found[name] - right[name]).detach().abs().max()) for name in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="float32,bfloat16")
    parser.add_argument("--sizes", default="64,128", help="of a head")
    parser.add_argument("--interpret", nargs="*", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.interpret is not None:
        print(json.dumps(interpret(given.interpret)))
        return
    results: dict[str, Any] = {
        "torch": torch.__version__,
        "shared_bytes_of_a_block": H100.shared_memory_per_block_optin,
        "compiled": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
        os.environ |= {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
        written: list[Path] = []
        for dtype in given.types.split(","):
            for size in map(int, given.sizes.split(",")):
                graphs, gpu = record(getattr(torch, dtype), size), Hopper()
                with gpu.open():
                    for name, graph in graphs:
                        gpu.compile(name, graph)
                attention = [kernel for kernel in gpu.kernels if "_tem_" in kernel["name"]]
                results["compiled"].append({"type": dtype, "size": size, "graphs": len(graphs), "kernels": attention})
                if (dtype, size) == ("float32", 64):
                    for number, source in enumerate(gpu.sources[1:]):
                        written.append(Path(folder, f"graph{number}.py"))
                        written[-1].write_text(source)
        if written:
            command = [sys.executable, "-m", "benchmarks.gpu.kernels", "--interpret", *map(str, written)]
            environment = os.environ | {"TRITON_INTERPRET": "1"}
            done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
            results["differences"] = json.loads(done.stdout)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
