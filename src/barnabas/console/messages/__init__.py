"""Records, browsed and searched: fetched by the console, decoded and filtered by a process of its own with limits.

Imports `console.cluster_view`, and in the process only `records` and CEL. Begin with `search.py`, then `worker.py`.
"""
