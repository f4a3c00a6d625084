"""Orders of a retail data set: the event, the producer that replays them, and the proof that each one arrived once.

The package is an ordinary client: it imports no other package of Barnabas. Begin reading with `event.py`, then
`replay.py` (the producer) and `proof.py` (the comparison of ledger, log and tables).
"""
