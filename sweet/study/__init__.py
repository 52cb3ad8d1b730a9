"""`sweet demo --study`: compares the methods, and the ablations of SWEET, with everything else the same.

    settings      the sizes, the methods and their hyperparameters
    plan          the work of one seed, in parts
    study_steps   the stage calls of a method or figure, as steps
    seeds         a process for each seed, a few at the same time; worker runs in it
    accounting    the generated tokens and the seconds of a method
    curves        the learning curves over tokens and seconds
    aggregate     from the runs to the results, with the statistics
    results       study.json

The folder of a study contains a run for each seed (and for each smaller number of training tasks), its log, and
`study.json`. The same command resumes with what is missing.
"""
