"""The model store: weights, tokenizer, template and engine arguments as immutable versions.

The law of this room: a version's id is the hash of what is in it, so what an id gives never
changes; and what is not whole cannot be found. `store.ModelStore` is its door, `weights` is what
those call who start replicas. Copies are ours only in so far as they are hashed on the way.
"""
