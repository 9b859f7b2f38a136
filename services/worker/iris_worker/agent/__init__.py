"""What speaks with the state service, and what is known of this host."""
