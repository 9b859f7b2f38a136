"""Deployments as records, and what they become with time: load, scale, health, rollout. Pure."""
