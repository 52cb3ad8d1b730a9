"""The kind of task `orders`: take an order in a shop, from a customer who tells a wish only when asked for it.

A family in natural language for small language models, with generated tasks, a scripted customer, a scripted agent of
mixed quality to imitate, and the value of every reply. The request hints at a wish without its value ("It is a
present."), and the answer to a question may hint at the next one; whoever reads the hints asks for the right wishes,
and whoever asks at random hardly ever does in the turns that there are. The shops and items of training, validation and
test differ, so that success on test tasks is reading hints, and not knowing items.
"""
