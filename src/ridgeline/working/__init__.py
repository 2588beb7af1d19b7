"""What can be done with an answer whose numbers know their past: why, sweep, sensitivity, picture.

Nothing here knows any topic, model or law: only `topics` and `quantity`.
"""
