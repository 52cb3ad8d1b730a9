"""`sweet play`: a person takes the seat of the human or of the agent in the dialogues of a rollout.

    config.py     the options and the metrics
    interface.py  what the person sees (`Situation`) and does (`Action`), and the interface that draws and collects them
    typed.py      checks of what a person types, and of a person's name
    sides.py      the two sides of a dialogue, whose steps are on the disk after every step, and are played back
    player.py     plays dialogues: asks, undoes, skips, leaves
    stage.py      the stage

The dialogue itself is the one of rollouts (`sweet.rollouts.dialogue`), so a person's follows the same protocol.
Every step of a side is recorded. To resume, or to undo a turn, the dialogue is begun again and the recorded steps are
played back; a model that is asked again gets the seed of its turn, which depends on the dialogue and the turn alone.
"""
