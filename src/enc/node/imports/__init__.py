"""Imports enclaves from other nodes: jobs, uploads, download, replay into staging."""
