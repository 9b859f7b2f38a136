"""Deployments and their routes: what is decided about them."""
