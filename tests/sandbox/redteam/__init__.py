"""Hostile answers as data, and what runs them: `python -m tests.sandbox.redteam.run TIER`."""
