"""A CUDA device simulated on a CPU: operations fail that would fail on a GPU because their tensors are on two devices.

Every tensor is in memory and every operation is done by the CPU. Which storages a program has put on the device is
remembered. A function mode of torch replaces the device in calls (`Calls`); a dispatch mode checks each operation as
CUDA does, and puts its results where its inputs are (`Operations`). Storages that torch makes within an operation
belong to no device until they meet another one. Not simulated: kernels, types that a device lacks, memory, and what is
done in other processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)

BETWEEN_DEVICES = {"copy_", "_to_copy", "set_"}
"""Operations whose tensors may be on different devices; the result is where the first one is."""

INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
"""Operations whose indices may be on the CPU."""

INDICES = {torch.int64, torch.int32, torch.bool, torch.uint8}

ANSWERS: dict[str, Any] = {
    "is_available": True,
    "is_initialized": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_name": "Simulated GPU",
    "mem_get_info": (1 << 34, 1 << 34),
    "max_memory_allocated": 0,
    "memory_allocated": 0,
    "reset_peak_memory_stats": None,
    "empty_cache": None,
    "synchronize": None,
    "manual_seed_all": None,
    "set_device": None,
    "get_rng_state_all": [],
    "is_bf16_supported": True,
    "is_current_stream_capturing": False,
    "_is_in_bad_fork": False,
}
"""What the functions of `torch.cuda` return."""


class DeviceMixError(RuntimeError):
    """An operation that CUDA refuses."""


class Devices:
    """Which storages are on which device."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[StorageWeakRef, torch.device]] = {}  # the reference keeps the number in use
        self.gpu_is_used = False
        """Whether a tensor was ever put on the GPU."""

    def of(self, tensor: Tensor) -> torch.device | None:
        """Return the device of a tensor; None if it belongs to none yet."""
        tensor = unbatched(tensor)
        if tensor.layout is not torch.strided:
            return None
        found = self._known.get(tensor.untyped_storage()._cdata)
        return None if found is None else found[1]

    def put(self, tensor: Tensor, device: torch.device) -> None:
        tensor = unbatched(tensor)
        if tensor.layout is torch.strided:
            self.gpu_is_used |= device == GPU
            storage = tensor.untyped_storage()
            self._known[storage._cdata] = reference_to(storage), device

    def put_new(self, values: Any, device: torch.device) -> None:
        """Put the tensors in `values` there that belong to no device yet."""
        for tensor in tensors_in(values):
            if self.of(tensor) is None:
                self.put(tensor, device)


def reference_to(storage: Any) -> StorageWeakRef:
    make: Any = StorageWeakRef
    reference: StorageWeakRef = make(storage)
    return reference


def tensors_in(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def unbatched(tensor: Tensor) -> Tensor:
    """The whole tensor of one of which `torch.vmap` shows a part."""
    functions = torch._C._functorch
    while functions.is_batchedtensor(tensor):
        tensor = functions.get_unwrapped(tensor)
    return tensor


def is_gpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Checks each operation of torch, and puts its results on the device of its inputs."""

    def __init__(self, devices: Devices) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.devices = devices

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunction():  # `Calls` is for what the program calls
            place = self._place_of(function, args, kwargs)
            result = function(*args, **kwargs)
            if place is not None:
                self.devices.put_new(result, place)
        return result

    def _place_of(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.device | None:
        """Return the device that an operation is done on; None if its tensors belong to none."""
        found = [(tensor, self.devices.of(tensor)) for tensor in tensors_in((args, kwargs))]
        known = [(tensor, device) for tensor, device in found if device is not None]
        if function._opname in BETWEEN_DEVICES:
            return found[0][1]
        if function._opname in INDEXING:
            used = {device for tensor, device in known if device == GPU or tensor.dtype not in INDICES}
            used |= {found[0][1] or CPU}
        else:
            used = {device for tensor, device in known if device == GPU or tensor.dim()}
        if len(used) > 1:
            shapes = ", ".join(f"{list(tensor.shape)} on {device}" for tensor, device in found)
            raise DeviceMixError(f"Expected all tensors to be on the same device: {function} of {shapes}")
        return used.pop() if used else next((device for _, device in known), None)


class Calls(TorchFunctionMode):
    """Answers questions about devices, moves tensors between them, and makes new tensors on the device asked for."""

    def __init__(self, devices: Devices) -> None:
        super().__init__()
        self.devices = devices

    def __torch_function__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        attribute = getattr(function, "__self__", None)
        if attribute is Tensor.device:
            return GPU if self.devices.of(args[0]) == GPU else function(*args)
        if attribute is Tensor.is_cuda:
            return self.devices.of(args[0]) == GPU
        if function in (Tensor.to, Tensor.cuda, Tensor.cpu):
            return self._moved(function, *args, **kwargs)
        if function in (Tensor.numpy, Tensor.__array__) and self.devices.of(args[0]) == GPU:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        tensors = tensors_in((args, kwargs))
        asked = kwargs.get("device")
        generator = kwargs.get("generator")
        on_gpu = is_gpu(asked) or any(self.devices.of(tensor) == GPU for tensor in tensors)
        if generator is not None and getattr(generator, "on_gpu", False) != on_gpu:
            raise DeviceMixError(f"{function.__name__}: the generator is on another device than the tensors")
        if asked is None:
            result = function(*args, **kwargs)
            if not tensors:
                self.devices.put_new(result, CPU)
            return result
        if tensors and function is torch.as_tensor:
            return args[0].to(**kwargs)
        kwargs.pop("pin_memory", None)
        place = GPU if is_gpu(asked) else torch.device(asked)
        result = function(*args, **kwargs | {"device": CPU if place == GPU else place})
        for tensor in tensors_in(result):
            self.devices.put(tensor, place)
        return result

    def _moved(self, function: Any, tensor: Tensor, *values: Any, **named: Any) -> Tensor:
        """`Tensor.to`, `cuda` and `cpu`."""
        place, dtype = None, tensor.dtype
        if function is not Tensor.to:
            place, values = (GPU if function is Tensor.cuda else CPU), ()
        for value in (*values, named.get("device"), named.get("dtype")):
            if isinstance(value, Tensor):
                place, dtype = self.devices.of(value), value.dtype
            elif isinstance(value, torch.dtype):
                dtype = value
            elif isinstance(value, str | torch.device):
                place = GPU if is_gpu(value) else torch.device(value)
        if place is not None and place.type == "meta":
            return tensor.to(device=place, dtype=dtype)
        own = self.devices.of(tensor)
        moves = place is not None and place != (own or CPU)
        result = Tensor.to(tensor, dtype=dtype, copy=moves or bool(named.get("copy")))
        if place or own:
            self.devices.put(result, place or own or CPU)
        return result


class Generator(torch.Generator):
    """A generator of the CPU, which knows for which device it was made."""

    on_gpu = False

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = super().__new__(cls)
        made.on_gpu = is_gpu(device)
        return made


class Autocast(torch.autocast):
    """The CPU's in place of the device's."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu" if device_type == "cuda" else device_type, *args, **kwargs)


def of_the_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of autocast for the CPU in place of that for the device."""
    return lambda device, *args: function("cpu" if device == "cuda" else device, *args)


def dense_attention(
    query: Tensor, key: Tensor, value: Tensor, *, score_mod: Any, block_mask: Any, scale: float | None, enable_gqa: bool
) -> Tensor:
    """FlexAttention by a mask of slots times slots, after a check that its tiles are on the device."""
    for tiles in (block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_indices, block_mask.q_indices):
        assert tiles.device == query.device
    assert enable_gqa == (query.shape[1] != key.shape[1])
    keys, values = (heads.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for heads in (key, value))
    slots = torch.arange(query.shape[2], device=query.device)
    places = (slots[:1], slots[:1], slots[:, None], slots[None])
    scores = query @ keys.transpose(2, 3) * (query.shape[3] ** -0.5 if scale is None else scale)
    if score_mod is not None:
        scores = score_mod(scores, *places)
    weights = scores.masked_fill(~block_mask.mask_mod(*places), -torch.inf).softmax(3, dtype=torch.float32)
    return weights.to(query.dtype) @ values


@contextmanager
def simulated_gpu() -> Iterator[Devices]:
    """While open, torch sees one CUDA device in all threads that are started."""
    devices = Devices()
    autograd: Any = torch.autograd
    run, run_backward = threading.Thread.run, autograd._engine_run_backward

    def run_simulated(thread: threading.Thread) -> None:
        with Calls(devices), Operations(devices):
            run(thread)

    def run_backward_simulated(*args: Any, **kwargs: Any) -> Any:
        with Calls(devices):  # torch closes it while it calls `backward`
            return run_backward(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "run", run_simulated)
        patch.setattr(autograd, "_engine_run_backward", run_backward_simulated)
        # Hooks of saved tensors are called with and without `Calls`, so that a tensor's device changes.
        patch.setitem(checkpoint._allowed_determinism_checks_to_fns, "default", lambda tensor: tensor.shape)
        patch.setattr(torch, "Generator", Generator)
        patch.setattr(torch, "autocast", Autocast)
        patch.setattr(torch.amp, "autocast", Autocast)
        for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
            patch.setattr(torch, name, of_the_cpu(getattr(torch, name)))
        for name, value in ANSWERS.items():
            patch.setattr(torch.cuda, name, lambda *_args, value=value, **_kwargs: value)
        patch.setattr(torch.cuda, "device", lambda *_args: nullcontext())
        # It asks a torch that was built for CUDA for the current stream.
        check = "_accelerator_graph_capture_health_check"
        patch.setattr(torch.optim.Optimizer, check, lambda _self: None, raising=False)
        patch.setattr("sweet.learn.flex._kernel", lambda _device: dense_attention)
        with Calls(devices), Operations(devices):
            yield devices
