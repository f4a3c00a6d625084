"""A cluster of broker processes in one directory: started, found again, stopped and killed.

This package imports only the standard library; the pytest fixtures and the command line use it. Begin with
`cluster.py`.
"""
