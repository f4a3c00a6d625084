"""Mutation testing: mutants of the product, what runs against each of them, and the table of who noticed which."""
