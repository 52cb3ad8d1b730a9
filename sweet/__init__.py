"""SWEET-RL and ColBench, end to end: collaborate, score, credit each turn, learn."""

__version__ = "0.1.0"
