"""The metrics of `sweet train-online`, and the work that its plan counts."""

from __future__ import annotations

from pydantic import Field

from sweet.stages.record import OMITTED_IF_NONE, Record, RecordedRecord


class CurvePoint(RecordedRecord):
    """A step of the learning curve."""

    step: int = 0
    """number of the step"""
    tokens: int = 0
    """tokens that the agent has written so far, validation excluded"""
    seconds: float = 0.0
    """duration of the training so far, earlier attempts included"""
    validation_seconds: float = 0.0
    """part of it in which validation tasks were played and scored, before this step's validation"""
    reward: float | None = None
    """mean reward of the step's dialogues"""
    success: float | None = None
    """share of them that solved their task; null where no task counts as solved (html)"""
    validation: float | None = None
    """share of the validation tasks that were solved after the step, where they were played; the mean reward where no
    task counts as solved"""


class OnlineMetrics(RecordedRecord):
    """The metrics of an online training."""

    steps: int = 0
    """steps done"""
    updates: int = 0
    """updates of the weights by the optimizer"""
    ended: str = ""
    """what ended the training: steps, tokens, seconds, or collapse"""
    collapse: str | None = None
    """with collapse: what showed it"""
    kept_step: int = 0
    """step whose weights are the actor"""
    episodes: int = 0
    """dialogues that were learned from"""
    failed: int = 0
    """dialogues that failed, and were left out"""
    failures: dict[str, int] | None = OMITTED_IF_NONE
    """the commonest reasons why dialogues failed in this call, with their numbers; absent where none did"""
    completion_tokens: int = 0
    """tokens that the agent wrote in them: what a budget of generated tokens counts"""
    prompt_tokens: int = 0
    """tokens that the agent read"""
    human_prompt_tokens: int = 0
    """tokens that the simulated human read"""
    human_completion_tokens: int = 0
    """tokens that the simulated human wrote"""
    validation_tokens: int = 0
    """tokens that the agent wrote on validation tasks"""
    reward: float | None = None
    """mean reward of the last steps (five, as for a collapse)"""
    validation: float | None = None
    """share of the validation tasks that the actor solved, where they were played; its mean reward on them where no
    task counts as solved"""
    agreement: float | None = OMITTED_IF_NONE
    """share of the couples of turns of a task's dialogues that the rule's weights order as the task does, a tie
    counting half; absent where tasks do not know what a turn is worth"""
    kl_start: float | None = None
    """divergence from the starting model in the last step, nats a token"""
    lr: float | None = None
    """learning rate"""
    parameters: int | None = None
    """parameters of the model"""
    trained_parameters: int | None = None
    """parameters that were trained, fewer with --lora"""
    play_seconds: float = 0.0
    """seconds of waiting for dialogues"""
    train_seconds: float = 0.0
    """seconds of learning"""
    update_seconds: float = 0.0
    """seconds until the sampler had new weights"""
    validation_seconds: float = 0.0
    """seconds of playing and scoring validation tasks"""
    cost: float | None = OMITTED_IF_NONE
    """with --prices: price of all tokens, validation and failed dialogues included; absent without"""
    seconds: float = 0.0
    """duration of the training, earlier attempts included"""
    curve: list[CurvePoint] = Field(default_factory=list)
    """each step: tokens and seconds so far, reward, success, validation"""


class OnlineWork(Record):
    """The work of an online training."""

    base: str
    """model to start from"""
    algorithm: str
    """credit rule"""
    parameters: int
    """parameters of the model"""
    trainable: int
    """parameters that are trained"""
    tasks: int
    """training tasks"""
    dialogues_per_step: int
    """dialogues of a step"""
    steps: int | None
    """steps at most; null where only a budget ends the training"""
    dialogues: int | None
    """dialogues at most"""
    tokens_written: int | None
    """tokens that the agent writes at most, where there is a budget of them; else by an earlier attempt"""
    devices: int
    """devices that it is trained on"""
    zero: int | None
    """stage of ZeRO; null where one process trains"""
