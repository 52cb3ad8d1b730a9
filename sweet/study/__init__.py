"""`sweet bench`: compares the methods, and the ablations of SWEET, with everything else the same.

    study         one demo or study
    settings      the sizes, the methods and their hyperparameters
    study_steps   the stage calls of a method or figure, as steps, and the work of one seed, in parts
    seeds         a process for each seed, a few at the same time
    tuning        as many settings for each method, and the best of them
    aggregate     from the runs to the results, with the learning curves and the statistics
    results       study.json
    submission    checks one from elsewhere, and adds it

The folder of a study contains a run for each seed, its log, and `study.json`. The same command resumes
with what is missing.
"""
