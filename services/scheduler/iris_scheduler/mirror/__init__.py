"""The records that placement needs, and workers as columns of numbers."""
