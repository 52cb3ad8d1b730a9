"""The names and summaries of the commands, each of which is in the module of `sweet.cli.commands` with its first word.

The help of the program reads this table and imports no command.
"""

from __future__ import annotations

SUMMARIES: dict[str, dict[str, str]] = {
    "Start here": {
        "demo": "Run the whole pipeline on this machine, on the packaged agent and tasks.",
        "train": "Train an agent on your tasks: all stages, round after round, in one command.",
    },
    "The pipeline, in order": {
        "serve-sim": "Start the simulated human as an OpenAI-compatible server.",
        "rollout": "Play dialogues between the agent and the simulated human.",
        "play": "Play the human or the agent yourself, in the terminal or in a browser.",
        "gateway": "Serve the agent's model to programs of yours, and record what they ask.",
        "eval": "Score the newest dialogues: code by its hidden tests, pages by their similarity to the reference.",
        "label": "Pair better and worse dialogues of the same task.",
        "train-critic": "Train the critic, which assigns credit to each turn, on the preferences.",
        "rank": "Sample candidate replies at turns and let the critic, or another judge, rank them.",
        "pair": "Make step-level pairs, chosen and rejected, from the ranked candidates.",
        "train-actor": "Train the agent on the pairs.",
        "train-online": "Train the agent online: play, score and learn in many small steps.",
    },
    "Results": {
        "view": "Browse dialogues in the terminal, or write them as one page.",
        "bench": "Compare methods, and credit rules of your own, over seeds at equal generated tokens.",
        "compare": "Compare two evaluations on the same tasks: paired differences, p-values, flipped tasks.",
        "report": "One self-contained page about a run: results, curves, dialogues, lineage.",
        "status": "Show the contents of a run, what is stale, and the next command.",
    },
    "Data and machine": {
        "data colbench": "Download ColBench's backend tasks from the model hub.",
        "data websight": "Build ColBench's frontend tasks from WebSight on the model hub.",
        "data assets": "Download the assets that the pages of frontend tasks load.",
        "data check": "Check the tasks of a file: references, tests, duplicates, leaks.",
        "data describe": "Write a specification in plain words of each task, for a human that shall not see the code.",
        "data synthesise": "Synthesise code tasks on given topics: requests, references and tests.",
        "data import": "Import dialogues from a file into a run.",
        "data export": "Export a run's dialogues, or its tasks and pairs for other trainers.",
        "data new-task": "Create the skeleton of a package with a new kind of task.",
        "doctor": "Check this machine and show the commands that install what is missing.",
    },
}
"""The summary of each command, by the title under which the help lists it."""

GROUPS = {"data": "Check, make, download, import and export datasets and dialogues."}
"""The first words that several commands share."""

INTRODUCTION = """SWEET-RL and ColBench end to end: collaborate, score, credit each turn, learn.

Commands write into a run, a directory under runs/; each command continues with the newest run by default."""

EXAMPLES = (
    ("sweet demo", "the whole pipeline on this machine, in a few minutes"),
    ("sweet status", "the contents of a run, and the next command"),
)
