"""Where the floors meet: one platform, whole. `live` runs it; nothing else yet."""
