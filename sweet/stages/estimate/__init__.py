"""What a stage would do, without doing it: `--dry-run` of the stages that work over data.

What the run has is counted as the stage itself would take it (`work`, `training`). What only comes out while a stage
works (turns of a dialogue, tokens of a turn, seconds) is told by finished attempts of the same stage, and every such
rate says which attempt it is from (`rates`); without one it is None. A run is only read.

A plan is a mapping of JSON types: the figures of the work, then

    flops       operations of the models: 2 a parameter and token that is read or written, 6 where it is trained
                (arXiv 2001.08361, section 2.1; attention's own are not counted); None where a model is not here
    bytes       that what is written takes on the disk
    hours       of the clock, gpus those that are held meanwhile, gpu_hours their product
    rates       by name: value, unit, from (RUN:attempt) and differs, the options in which that attempt differs
    assumed     what was assumed, in sentences
"""
