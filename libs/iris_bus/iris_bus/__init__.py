"""The only package that imports nats: the bus contract and its implementation on JetStream."""
