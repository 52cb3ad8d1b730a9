"""The metrics of `sweet train-critic` and `sweet train-actor`, and the work that their plans count."""

from __future__ import annotations

from sweet.stages.record import OMITTED_IF_NONE, RecordedRecord


class TrainCounts(RecordedRecord):
    """What a training does, and what its plan counts."""

    steps: int | None = None
    """optimizer steps done"""
    tokens: int | None = None
    """tokens trained on, as if every sequence were computed separately"""
    tokens_computed: int | None = None
    """tokens that were computed, shared prefixes once"""
    sharing: float | None = None
    """tokens over tokens_computed"""
    padding: float | None = None
    """share of the computed positions that held no token"""
    lr: float | None = None
    """highest learning rate"""
    nll: float | None = None
    """weight of the likelihood term"""
    epochs: int | None = None
    """passes over the data"""
    batch: int | None = None
    """examples of a step"""
    shuffle: str | None = None
    """order of the examples: examples, pieces or grouped; null where OpenRLHF shuffles"""
    parameters: int | None = None
    """parameters of the model"""
    examples: int | None = None
    """pairs or dialogues learned from"""
    heldout: int | None = None
    """preferences held out"""
    dropped_turns: int | None = None
    """early turns dropped because the sequence was too long"""
    left_out: int | None = None
    """examples dropped because even their last turn was too long"""


class TrainMetrics(TrainCounts):
    """The metrics of a training. Those of a training by OpenRLHF are examples, steps, parameters and seconds."""

    loss: float | None = None
    """mean loss of the last epoch"""
    accuracy: float | None = None
    """share of the last epoch's pairs whose chosen side came out higher; null without pairs"""
    margin: float | None = None
    """mean difference of the two sides in the last epoch, as the loss sees it, beta included"""
    tokens_per_second: float | None = None
    """tokens per second; null where a resumed training had no step left"""
    tokens_computed_per_second: float | None = None
    """computed tokens per second"""
    mfu: float | None = None
    """model FLOPs utilisation of tokens, on GPUs whose peak is known"""
    mfu_computed: float | None = None
    """model FLOPs utilisation of tokens_computed: what the device did"""
    seconds: float | None = None
    """duration of the training"""
    cost: float | None = OMITTED_IF_NONE
    """price of what a service passed over, what was repeated included; absent without --prices"""
    changed_weights: int | None = None
    """weights that the training changed, where they are stored in a type of less precision"""
    stored_weights: int | None = None
    """those of them that are stored with another value than before"""
    heldout_accuracy: float | None = None
    """share of the held-out preferences in order, by the weights that were kept"""
    best_step: int | None = None
    """step of these weights"""
    advantage_chosen: list[float | None] | None = None
    """mean advantage of the first, second, … turn of the chosen sides, last epoch, nats a token"""
    advantage_rejected: list[float | None] | None = None
    """the same of the rejected sides"""
    ratio: float | None = None
    """mean ratio of the trained policy's probability of a weighted token to that of the model that sampled it, last
    epoch; absent where no token is weighted, as for the four below"""
    difference: float | None = None
    """mean absolute difference of these two log-probabilities"""
    surprise: float | None = None
    """mean of -log-probability under the model that sampled, an estimate of its entropy"""
    clipped: float | None = None
    """share of the weighted tokens that the policy gradient clipped"""
    masked: float | None = None
    """share of the weighted tokens that it left out, because the ratio was out of bounds"""
    groups: int | None = None
    """tasks whose dialogues were compared by their rewards; absent, as the next, for rules that do not"""
    equal_groups: int | None = None
    """of these, tasks whose dialogues have equal rewards, from which such a comparison learns nothing"""
    reward_preferences: int | None = None
    """couples of a better and a worse dialogue that a reward model learned from (istar, itpo); absent, as the next two,
    for rules that train none"""
    reward_loss: float | None = None
    """its mean loss in its last epoch"""
    reward_accuracy: float | None = None
    """share of the couples that it ordered correctly in its last epoch, each before it learned from the couple"""
    trained_parameters: int | None = None
    """parameters that were trained, fewer with --lora"""


class TrainWork(TrainCounts):
    """The work of a training; its tokens are those of an epoch."""

    base: str | None = None
    """model to start from"""
    trainable: int | None = None
    """parameters that are trained"""
    engine: str | None = None
    """torch, deepspeed, openrlhf or tinker"""
    devices: int | None = None
    """devices that train; null where OpenRLHF chooses, or a service trains"""
    tokens_billed: int | None = None
    """tokens that a service gets in the whole training: for each step a pass forward and one backward, and once for
    the reference; null without one"""
    micro_batches: int | None = None
    """forward passes of an epoch"""
    zero: int | None = None
    """ZeRO stage; null on one device"""
    offload: str | None = None
    """what is kept in the host's memory"""
    memory: dict[str, int] | None = None
    """bytes of one device by use, their total, and under host those of all devices of one machine"""
