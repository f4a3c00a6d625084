"""Clusters by the names of trivup."""
