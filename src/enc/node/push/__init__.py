"""Delivers events to webhooks: builds batches, schedules them, sends them from a child process."""
