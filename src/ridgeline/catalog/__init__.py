"""Facts about the world that the product ships, each with its source."""
