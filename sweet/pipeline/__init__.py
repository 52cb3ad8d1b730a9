"""`sweet train`: all stages in one run directory, round after round, by one recipe.

    config      the options of the command
    recipe      one TOML file with the options of every stage: read, checked, written into the run
    steps       finds finished steps in the run's manifest, so that they are not done again
    loop        the rounds: evaluate, play, learn; ends early and keeps the best actor
    plan        what changed settings would repeat, and the plan of --dry-run
    stage       one call: checks, servers, the loop
    metrics     the results, with what tokens cost (prices)
    servers     starts and ends the servers that a stage needs (phases), on GPUs of their own

Nothing is kept but the run: a step is a stage with its settings, and it is finished where the manifest says so. So the
same command continues wherever the last one stopped.
"""
