"""A small shop on a sharded MongoDB cluster."""
