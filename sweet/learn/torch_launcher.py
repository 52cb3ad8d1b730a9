"""torch's launcher of ranks, as a program: `python -m sweet.learn.torch_launcher OPTIONS`, with those of torchrun.

It differs from `torch.distributed.run` in how long it takes to start and to exit (`sweet.collector`).
"""

from __future__ import annotations

from sweet import collector

if __name__ == "__main__":
    with collector.paused():
        from torch.distributed.run import main
    try:
        main()
    finally:
        collector.before_exit()
