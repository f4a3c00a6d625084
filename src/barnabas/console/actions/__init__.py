"""The actions on a cluster. Each one checks its arguments, then says what it would do, or does it."""
