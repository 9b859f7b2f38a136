"""NATS servers: their program, configuration, health and files."""
