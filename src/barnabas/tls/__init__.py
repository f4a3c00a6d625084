"""TLS by the files that properties name: the contexts with which our own clients speak."""
