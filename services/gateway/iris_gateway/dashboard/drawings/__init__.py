"""Shapes and charts of the pages, as SVG. Pure."""
