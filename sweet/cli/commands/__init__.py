"""One module for each command, with its `COMMANDS`, which `sweet.cli.app` lists."""
