"""A witness: follows the heads of enclaves, co-signs those that extend earlier ones, and publishes
them."""
