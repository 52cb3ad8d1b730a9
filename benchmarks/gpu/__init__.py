"""What this project claims about GPUs and has measured on none, as stages of one command: `python -m benchmarks.gpu`.

`stages` is the table of stages. Each is a list of parts, which are measured one after the other in a child process
(`child`) with a limit (`runner`); every part that is finished is a row of the stage's result (`results`), so that a
stage which runs out of time keeps what it has and is continued by the next call. docs/gpu.md is made from the results.
"""
