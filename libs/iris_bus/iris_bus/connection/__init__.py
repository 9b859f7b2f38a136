"""One connection to NATS: messages, requests and retries, without storage."""
