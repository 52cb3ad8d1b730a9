"""Divides the layers of a model among GPUs, where one is too small for its weights.

The embeddings, the last norm and the output layer are on one device. Each device has consecutive layers, in proportion
to its free memory, and the states go from device to device; so the numbers are those of one device, and one device
computes at a time. It is for models that only read, such as a critic that ranks: trainings divide by ZeRO, servers by
tensor parallelism.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sweet.errors import UsageError
from sweet.units import format_bytes

if TYPE_CHECKING:
    import torch

USABLE = 0.9
"""Share of the free memory that weights may take; the rest is for activations."""

LEAST_FREE = 0.25
"""Share of a GPU's memory that is free at least where it gets layers: a server leaves less."""


def place(model: Any, name: str, device: torch.device) -> Any:
    """Put a model on a device, or its layers on all GPUs that are free if this is a GPU and too small.

    Args:
        name: of the model, for the error.

    Raises:
        UsageError: it does not fit these GPUs together.
    """
    import torch

    if device.type != "cuda" or torch.cuda.device_count() < 2:
        return model.to(device)
    size, memory = _size(model), [torch.cuda.mem_get_info(number) for number in range(torch.cuda.device_count())]
    if size <= USABLE * memory[device.index or 0][0]:
        return model.to(device)
    usable = {number: free for number, (free, total) in enumerate(memory) if free >= LEAST_FREE * total}
    if size > USABLE * sum(usable.values()):
        raise UsageError(
            f"The weights of {name} have {format_bytes(size)}, and {format_bytes(sum(usable.values()))} are free on "
            f"{len(usable)} of {len(memory)} GPUs.",
            where="--device cuda",
            fix="more GPUs, or servers on fewer of them (nvidia-smi shows what holds their memory)",
        )
    emptiest_first = sorted(usable, key=lambda number: -usable[number])
    return spread(model, {torch.device("cuda", number): usable[number] for number in emptiest_first})


def spread(model: Any, room: Mapping[torch.device, int]) -> Any:
    """Divide the layers of a model among devices, and return it.

    Args:
        room: bytes that are free on each device. The first one gets what is outside of the layers, too.
    """
    import torch

    layers = max((module for module in model.modules() if isinstance(module, torch.nn.ModuleList)), key=_size)
    within, first = set(layers.modules()), next(iter(room))
    for module in model.modules():
        if module not in within:
            module._apply(lambda tensor: tensor.to(first), recurse=False)
    outside = _size(model) - _size(layers)
    free = {device: size - (outside if device == first else 0) for device, size in room.items()}
    share = _size(layers) / sum(free.values())
    # Each device in turn is filled to the same share: a layer is where its middle is.
    devices, device, filled, end = iter(free), first, 0.0, 0.0
    for layer in layers:
        size = _size(layer)
        while filled + size / 2 > end:
            device = next(devices)
            end += share * free[device]
        filled += size
        layer.to(device).register_forward_pre_hook(lambda _, *inputs, to=device: _moved(inputs, to), with_kwargs=True)
    layers[-1].register_forward_hook(lambda _layer, _inputs, output: _moved(output, first))
    return model


def _moved(values: Any, device: torch.device) -> Any:
    import torch
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), values)


def _size(module: Any) -> int:
    """Bytes of its weights."""
    return sum(weight.nbytes for weight in module.parameters())
