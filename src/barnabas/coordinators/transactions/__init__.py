"""The transaction coordinator (KIP-98, KIP-890): transactional ids, their states and the delivery of markers.

Imports the modules of `coordinators`, and not `coordinators.groups`. Begin with the states in `state.py`, then
`coordinator.py`.
"""
