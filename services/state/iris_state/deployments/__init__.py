"""Decisions about deployments and their routes."""
