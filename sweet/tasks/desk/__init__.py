"""The kind of task `desk`: serve customers at a shop's desk, with tools that read and change its records.

The request names an item and hints at a wish. The agent finds the order, asks for the detail of the wish, reads the
shop's policy for it, and changes the order where that is allowed. Its last message says the fee, or the days within
which it would have been possible. Shops, items and policies of training, validation and test differ, so that success on
test tasks is reading hints, records and policies. The datasets are in the size of `micro`.
"""
