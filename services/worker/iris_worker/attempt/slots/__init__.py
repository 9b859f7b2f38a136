"""What an attempt is given of its host: a directory, a user, devices, ports."""
