"""Where a model runs, as it is asked for; `sweet.library.resolve_device` says what that means on this machine."""

from __future__ import annotations

from typing import Literal

Device = Literal["auto", "cpu", "cuda"]
