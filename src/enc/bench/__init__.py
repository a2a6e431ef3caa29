"""Generates logs for measurements and tests: fleets of enclaves from a seed, honest or with a
fault planted.
"""
