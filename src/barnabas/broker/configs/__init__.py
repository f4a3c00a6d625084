"""Dynamic configs as clients describe and change them.

Owns DescribeConfigs, both AlterConfigs APIs and the levels of loggers. Imports `broker.requests`. Begin with
`config_changes.py`.
"""
