"""Fetch sessions and the encoding of Fetch responses.

Owns what a session remembers, the layout of responses, and what a connection keeps of its last request; the reads are
in `replication.fetching`. `fetch_sessions` imports no other package of `broker`, `fetch_responses` imports `requests`
and `topics`. Begin with `fetch_sessions.py`.
"""
