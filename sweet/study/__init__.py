"""`sweet demo --study`: do the methods, and the ablations of SWEET, differ where everything else is the same?

    settings    the sizes, the methods and their hyperparameters
    plan        what one seed does, part by part
    lab         the stage calls of a method or figure, as steps
    ledger      a step that the run's manifest knows as finished is not done again
    seeds       a process for each seed, a few at once; worker is what runs in it
    gather      from the runs to the results, with the statistics
    results     study.json

The folder of a study holds a run for each seed (and for each smaller number of training tasks), its log, and
`study.json`. The same command goes on with what is missing.
"""
