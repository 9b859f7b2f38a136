"""Streams and stores of JetStream: declared, written and read."""
