"""The documentation pages, and the programs that generate parts of them (`docs.tools`)."""
