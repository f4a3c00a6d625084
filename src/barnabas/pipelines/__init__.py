"""Spark pipelines over topics: they turn orders into tables, and the journal into figures of the cluster's health.

The package imports `orders` and `spark`, and Spark, Arrow, DuckDB and Delta. Begin reading with `orders.py`, then
`day_files.py`, `commits.py` and `publishing.py`.
"""
