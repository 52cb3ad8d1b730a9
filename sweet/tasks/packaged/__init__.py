"""The packaged agents: language models of about one million parameters in Hugging Face layout.

Each was trained from nothing by imitating a scripted agent of mixed quality (`docs/tools/micro_agent.py`): it asks
useless questions, repeats itself, delivers too early and writes wrong values. Each plays the dataset of its name;
`micro-parts` plays `micro-long` too. The folder of each has a card.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

PACKAGED = MappingProxyType({name: Path(__file__).parent / name for name in ("micro", "micro-parts", "desk")})
"""The folders of the models, by name."""
