"""`sweet play` as a Textual application, on a terminal or in a browser."""
