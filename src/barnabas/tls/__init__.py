"""TLS for our own clients: contexts created from the files that a client's properties name."""
