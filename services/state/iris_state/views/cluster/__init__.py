"""Views of hosts, of users, and of what the cluster holds and lacks."""
