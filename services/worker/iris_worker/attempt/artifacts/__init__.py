"""The output directories of attempts, kept as artifacts."""
