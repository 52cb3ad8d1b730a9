"""The names of the credit rules: those of this package, and those that others provide by an entry point.

A package provides a rule by an entry point of the group `sweet.credit`, named as the rule and referring to its class
(`sweet.credit.base.CreditRule`). Nothing is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sweet.plugins import CREDIT, plugins

RULES: Mapping[str, str] = MappingProxyType(
    {
        "sweet": "sweet.credit.sweet:Sweet",
        "multi-turn-dpo": "sweet.credit.sweet:MultiTurnDPO",
        "rft": "sweet.credit.imitation:RejectionFineTuning",
        "sft": "sweet.credit.imitation:SupervisedFineTuning",
        "grpo": "sweet.credit.groups:GRPO",
        "rloo": "sweet.credit.groups:RLOO",
        "opsd": "sweet.credit.opsd:OPSD",
        "ppo": "sweet.credit.ppo:PPO",
        "gigpo": "sweet.credit.gigpo:GiGPO",
        "mt-grpo": "sweet.credit.mt_grpo:MTGRPO",
        "tree-grpo": "sweet.credit.tree:TreeGRPO",
        "mr": "sweet.credit.tree:MultiturnReward",
        "igpo": "sweet.credit.igpo:IGPO",
        "infopo": "sweet.credit.infopo:InfoPO",
        "istar": "sweet.credit.istar:IStar",
        "itpo": "sweet.credit.itpo:ITPO",
        "sweet-pg": "sweet.credit.sweet_pg:SweetPG",
        "sweet-pg-candidates": "sweet.credit.sweet_pg:SweetPGCandidates",
    }
)
"""The rules of this package, in the order in which they are shown. Their names are reserved."""


def rule_names() -> list[str]:
    """Return the names of all rules that are installed."""
    return [*RULES, *(name for name in plugins(CREDIT) if name not in RULES)]
