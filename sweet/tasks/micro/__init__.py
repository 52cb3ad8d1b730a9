"""The `micro` datasets: a miniature ColBench for machines with only a CPU.

The datasets are generated (`rules`, `generator`): requests for small price functions, in ColBench's schema. The request
states the rate; the human knows three further rules, of the four that are typical of the function, and states those
that are asked for. `micro-long` is the same with five of eight rules, and in `micro-parts` the code is delivered line
by line (`family`).
"""
