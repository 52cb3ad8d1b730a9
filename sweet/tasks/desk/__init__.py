"""The kind of task `desk`: serve customers at a shop's desk, with tools that read and change its records.

The request names an item and hints at a wish. The agent finds the customer's order (`find_orders`), asks for the detail
of the wish, reads the shop's policy for it (`read_policy`), and changes the order (`change_order`) where the policy
allows that. Its last message says the fee, or the days within which it would have been possible. A dialogue succeeds if
the records are those that the reference calls leave, and that number was said (`scoring`).

Shops, items and policies of training, validation and test differ, so that success on test tasks is reading hints,
records and policies. The generated datasets are in the size of `micro`: `desk`, and `desk-cloning` for a start agent.
"""
