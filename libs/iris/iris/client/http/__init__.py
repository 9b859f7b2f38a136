"""The way to the gateway: its address, requests, event streams and the sign-in."""
