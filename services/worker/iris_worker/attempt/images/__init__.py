"""Containers of images, by a container runtime of the host."""
