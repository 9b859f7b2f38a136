"""The only package that imports nats: the bus contract, JetStream and in-memory implementations."""
