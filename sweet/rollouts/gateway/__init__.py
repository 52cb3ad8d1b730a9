"""`sweet gateway` and `sweet rollout --harness`: other people's agents, whose calls of the model are recorded.

    sessions   one session: what its calls and posts make of it, and its rows
    app        the HTTP application: keys, sessions, the model and the human
    harness    a program that is started for each dialogue, and its bounds
    jail       where such a program is started, if asked; relay is its way to the model
    stage      `sweet gateway`: serves until it is stopped

A session is one dialogue of a program with the model. It is the sum of its steps (`sweet.rollouts.steps`), which are on
the disk as soon as they have happened, so that a gateway that was killed goes on with its sessions.
"""
