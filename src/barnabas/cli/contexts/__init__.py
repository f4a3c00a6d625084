"""Contexts: named clusters with their addresses and client settings, kept in a file of the user."""
