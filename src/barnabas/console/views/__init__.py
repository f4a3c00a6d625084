"""The answers of the reading routes: each module makes one screen of a cluster's table, or of brokers' answers.

Imports `console.cluster_view` and the monitor. Begin with `overview.py`.
"""
