"""What is wrong with an installation: one file for each subject that is looked at.

The law of this room: a check looks and changes nothing, needs no optional part of the product, and
says what its finding means and what mends it. `examine` runs them all, `cli.doctor` prints.
"""
