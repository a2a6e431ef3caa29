"""The chat screen that `enc dm chat` and `enc group chat` share."""
