"""The metrics of `sweet train-critic` and `sweet train-actor`, and the work that their plans count."""

from __future__ import annotations

from sweet.stages.record import Record


class TrainWork(Record):
    """The work of a training."""

    base: str
    """model to start from"""
    parameters: int
    """parameters of the model"""
    trainable: int
    """parameters that are trained"""
    examples: int
    """pairs or dialogues to learn from"""
    heldout: int
    """preferences held out"""
    dropped_turns: int
    """early turns dropped because a sequence is too long"""
    left_out: int
    """examples dropped because even their last turn is too long"""
    epochs: int
    """passes over the data"""
    batch: int
    """examples of a step"""
    lr: float
    """peak learning rate"""
    nll: float
    """weight of the likelihood term"""
    steps: int
    """optimizer steps"""
    engine: str
    """torch, deepspeed or openrlhf"""
    devices: int | None
    """devices that train; null where OpenRLHF chooses"""
    tokens: int
    """tokens of an epoch"""
    tokens_computed: int | None = None
    """tokens that are computed, shared prefixes once"""
    sharing: float | None = None
    """tokens over tokens_computed"""
    padding: float | None = None
    """share of the computed positions that hold no token"""
    micro_batches: int | None = None
    """forward passes of an epoch"""
    zero: int | None = None
    """ZeRO stage; null on one device"""
    offload: str | None = None
    """what is kept in the host's memory"""
    memory: dict[str, int] | None = None
    """bytes of one device by use, their total, and under host those of all devices of one machine"""
