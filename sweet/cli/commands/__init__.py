"""One module a command. Each declares `COMMANDS`; `sweet.cli.app` gathers them."""
