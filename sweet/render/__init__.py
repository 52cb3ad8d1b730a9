"""Pages nobody trusts to screenshots (page, store, browsers), and screenshots to how alike they are."""
