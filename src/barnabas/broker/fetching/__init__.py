"""Fetch sessions and the encoding of answers to Fetch.

Reads come from `replication.fetching`; here is what a session remembers and how an answer is laid out. Begin with
`fetch_sessions.py`.
"""
