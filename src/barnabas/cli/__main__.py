"""Runs `python -m barnabas.cli`, which is the same as the console script."""

from __future__ import annotations

from barnabas.cli.entry import main

main()
