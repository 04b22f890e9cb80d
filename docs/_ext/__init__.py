"""What the site needs beyond Sphinx: generated pages and three small extensions."""
