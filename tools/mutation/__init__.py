"""Mutation testing: mutants of the product, what runs against each of them, and the table of which test or world
noticed which mutant.
"""
