"""The only package that knows NATS: a small contract, kept by JetStream and by memory, and what every shell shares."""
