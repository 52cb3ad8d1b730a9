"""Render untrusted pages to screenshots (page, store, browsers), and compare screenshots (similarity)."""
