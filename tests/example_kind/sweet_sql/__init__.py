"""SQL queries as a kind of task for sweet."""
