"""Where processes run. `local` starts them on this machine and leaves no orphan."""
