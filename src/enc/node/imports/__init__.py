"""Imports enclaves from other nodes: orders, logs that arrive, jobs, replay into staging."""
