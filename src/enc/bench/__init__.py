"""Logs to measure and to try others with: whole fleets of enclaves from a seed, honest or with a
fault planted.
"""
