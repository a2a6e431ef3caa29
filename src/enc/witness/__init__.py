"""A witness: follows the heads of enclaves, co-signs those that extend what it saw before, and shows them to all."""
