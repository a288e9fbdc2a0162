"""Makes PyMongo retry on a different mongos."""
