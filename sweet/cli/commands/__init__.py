"""One module for the commands with the same first word; `sweet.cli.summaries` lists them."""
