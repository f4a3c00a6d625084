"""Spark pipelines over topics: orders into tables, the cluster's journal into figures of its health."""
