"""Toolboxes: what runs the tools of a kind of task (`sweet.tasks.tools.Toolbox`)."""
