"""Run every benchmark in this folder."""
