"""A cluster of broker processes in one directory: started, found again, stopped and killed.

Imports the standard library only; the pytest fixtures and the command line both stand on it. Begin with
`cluster.py`.
"""
