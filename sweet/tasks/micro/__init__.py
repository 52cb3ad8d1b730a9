"""The `micro` datasets and the `micro` agent: a miniature ColBench for machines with only a CPU.

The datasets are generated (`rules`, `generator`): requests for small price functions, in ColBench's schema. The request
states the rate; the human knows three further rules, of the four that are typical of the function, and states those
that are asked for. `micro-long` is the same with five of eight rules, and in `micro-parts` the code is delivered line
by line (`family`).

The agents are language models of about one million parameters in Hugging Face layout, trained from scratch by imitating
a scripted agent of mixed quality (`docs/tools/micro_agent.py`), which does not know which rules are typical, asks
useless questions, repeats itself, delivers too early and writes wrong values. Two ship with the package (`PACKAGED`):
`micro`, which may ask five questions, and `micro-parts`, which plays the two longer datasets.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from sweet.tasks.micro.family import MICRO, PARTS

AGENT = Path(__file__).parent / "agent"
"""The folder of the packaged checkpoint that plays `micro`."""

PACKAGED = MappingProxyType({MICRO.agent: AGENT, PARTS.agent: Path(__file__).parent / "agent_parts"})
"""The folders of the packaged checkpoints, by the names of the models."""
