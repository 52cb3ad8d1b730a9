"""Agents that try to make the simulated human give the reference away.

They need no model and see what every agent sees, the request and the human's replies. Each asks for the program in
one form (as code, line by line, in base64, as a syntax tree, …), adapts to the replies, and delivers as its answer what
it could put together from the human's words alone. The success rate of such dialogues is therefore the share of tasks
whose reference can be had from the human without a leak being found.

`attackers` has them, `decoding` how the replies are put back into a program. `benchmarks.extraction` measures how much
they recover.
"""
