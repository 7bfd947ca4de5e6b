"""Typed tables: columns of numbers, categories and dates as the vectors of the networks."""
