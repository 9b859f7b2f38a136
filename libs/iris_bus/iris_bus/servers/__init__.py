"""What NATS servers say of themselves."""
