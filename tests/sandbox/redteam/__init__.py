"""Hostile answers as data, and the program that runs them: `python -m tests.sandbox.redteam.run TIER [--brief]`."""
