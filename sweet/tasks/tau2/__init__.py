"""The kind of task `tau2`: the customer service of tau2-bench, played with the human of this program.

`tau2:DOMAIN` is a domain of the user's own checkout, of which nothing is part of this program: its tasks, policy, tools
and evaluator run in a process of the checkout (`child`), and `kind` asks it.
"""
