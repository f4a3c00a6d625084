"""Fetch sessions and the encoding of Fetch responses.

Owns what a session remembers and the layout of responses; the reads are in `replication.fetching`. `fetch_sessions`
imports no other package of `broker`, `fetch_responses` imports `requests` and `topics`. Begin with `fetch_sessions.py`.
"""
