"""The floor of training: what runs need, how they run, what goes wrong."""
