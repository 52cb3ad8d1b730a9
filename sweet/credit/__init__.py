"""Credit rules: what a trained policy learns from dialogues.

    base             a rule is a class that turns scored dialogues into weights on the four loss components
                     (`sweet.learn.components`), and the default settings of its training; the trainer knows no rule
    names, registry  the rules by name, those of other packages by entry point
    sweet, groups, … the rules

Importable without torch.
"""
