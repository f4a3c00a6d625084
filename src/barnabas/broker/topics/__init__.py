"""Topics as requests see them.

Owns automatic creation, authorized operations and look-ups in the metadata image. Imports `broker.requests.context`.
Begin with `topic_views.py`.
"""
