"""Work on many machines, by Ray: who is there (`nodes`), what runs on each (`bench`), who does what (`spread`).

Nothing here knows what the work is. It knows items and their results, one for each in the same order, and somebody
who can open what does the work (a sandbox with its scorer, browsers, a critic) on the machine where it is wanted.
"""
