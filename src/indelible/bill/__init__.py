"""What persistence costs: prices of storage, and what a run would pay there.

Owns: the price list, and the formulas from bytes and writes to dollars.
Must never: be imported by anything but the command line; ask the network for a price.
Invariant: a price has a source and a date, and what is not known is said to be unknown and never counted as zero.
"""
